"""What one worker alone can see is told to the others before it is looked at any further."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from lioncub import Levels, TwoPhase, Vote
from lioncub.codecs import Codec
from lioncub.errors import ConfigError, WireError
from lioncub.kernels.layout import Layout
from lioncub.transport.comm import Comm, Pending
from lioncub.wire import checksums
from lioncub.wire.envelope import TAGS_PER_EXCHANGE, Envelope
from lioncub.wire.headers import Header

LAYOUT = Layout((500,), 3)
HEADERS = [Header(rank, 0, 1, 2, 3, 4, (True,)) for rank in range(3)]


def forged(header: Header) -> Tensor:
    """A header whose own checksum is wrong."""
    packed = header.pack()
    packed[5] ^= 1
    return packed


@pytest.mark.parametrize("codec", [Vote(), Levels(4, grid="float")], ids=str)
def test_damage_is_told_although_another_header_cannot_be_read(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    payload = codec.encode(torch.randn(LAYOUT.padded_numel), LAYOUT, 1)
    sent: list[tuple[int, Mapping[int, Tensor]]] = []

    def swap(_: Comm, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor], tag: int) -> Pending:
        sent.append((tag, outgoing))
        for peer, room in incoming.items() if tag == 0 else ():
            head = forged(HEADERS[peer]) if peer == 2 else HEADERS[peer].pack()
            shard = payload.view(3, -1)[:1]
            message = checksums.with_seal(head[None], shard, device=torch.device("cpu"))[0]
            message[60] ^= peer == 1  # on its way
            room[: len(message)] = message
        return Pending()

    monkeypatch.setattr(Comm, "swap", swap)
    mail = Envelope(Comm(None, (0, 1, 2), 0), LAYOUT, HEADERS[0], 0)
    exchange = TwoPhase().exchange(mail, codec, payload, torch.float32)
    with pytest.raises(WireError, match="damaged bytes from"):
        for _ in exchange:
            pass
    assert [tag for tag, _ in sent] == [0, 1]
    notices = [int(message[-checksums.SEAL :].view(torch.int32)[0]) for message in sent[1][1].values()]
    assert len(set(notices)) == 1
    assert notices[0] != 0


def test_an_exchange_does_not_run_into_the_tags_of_the_next() -> None:
    mail = Envelope(Comm(None, (0,), 0), LAYOUT, HEADERS[0], 0, headers=(HEADERS[0],))
    for _ in range(TAGS_PER_EXCHANGE):
        mail._new_tag()
    with pytest.raises(ConfigError, match="8 patterns"):
        mail._new_tag()
    with pytest.raises(ConfigError, match="8 patterns"):
        mail.among(mail.comm, TAGS_PER_EXCHANGE)._new_tag()
