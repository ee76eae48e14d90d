"""How payloads travel, in how many bytes and messages.

A collective sees payloads, ``uint8 [blocks, bytes]``, and an :class:`~lioncub.wire.envelope.Envelope` that takes them
to the other workers. An exchange is a generator, so that overlapping code still reads top to bottom.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lioncub.codecs import Codec, Vote
from lioncub.kernels.layout import Ballot, Layout
from lioncub.transport.comm import Comm, Pending
from lioncub.wire.envelope import Envelope, Steps, answer_bytes, later_message_bytes
from lioncub.wire.headers import Header

SINGLE_VOTER = Vote(zeros="abstain")
"""Two bits hold -1, 0 and 1: with nobody to combine with, the sign itself."""


@dataclass(frozen=True)
class Outcome:
    """The result of an exchange."""

    codec: Codec
    combined: Tensor
    ballot: Ballot
    payload: Tensor
    """What this worker (or its node) sent, ``[shards, blocks, bytes]``."""
    voter: int
    """This worker's (or its node's) number among the voters."""
    headers: tuple[Header, ...]
    """Every worker's header."""


@dataclass(frozen=True)
class Traffic:
    """Bytes that one worker hands to the network for one exchange, and gets from it."""

    sent_bytes: int = 0
    received_bytes: int = 0
    num_messages: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.sent_bytes + other.sent_bytes,
            self.received_bytes + other.received_bytes,
            self.num_messages + other.num_messages,
        )

    @classmethod
    def with_each(cls, num_peers: int, sent_bytes: int, received_bytes: int) -> Traffic:
        """The same with each of some peers; empty messages are not sent."""
        return cls(num_peers * sent_bytes, num_peers * received_bytes, num_peers * (sent_bytes > 0))


@dataclass(frozen=True)
class Wire:
    """The sizes on which traffic depends: of the blocks, and of what is sent for each."""

    blocks: int
    up_block_bytes: int
    down_block_bytes: int
    header_bytes: int

    @classmethod
    def of(cls, codec: Codec, layout: Layout, num_voters: int) -> Wire:
        header_bytes = Header.num_bytes(len(layout.lengths))
        return cls(layout.blocks, codec.up_block_bytes, codec.down_block_bytes(num_voters), header_bytes)

    def up(self, blocks: int, *, first: bool = False) -> int:
        """Bytes of a message with payloads of so many blocks; the first one of an exchange to everybody is longer."""
        return self.header_bytes * first + later_message_bytes(blocks * self.up_block_bytes)

    def down(self, blocks: int) -> int:
        """Bytes of a message with outcomes of so many blocks."""
        return later_message_bytes(blocks * self.down_block_bytes)

    @property
    def answer(self) -> int:
        """Bytes of a message with the whole outcome, from the one worker that has combined it."""
        return answer_bytes(self.blocks * self.down_block_bytes)

    def headers(self, num_workers: int) -> Traffic:
        """Of headers ahead of the payloads, from everybody to everybody."""
        return Traffic.with_each(num_workers - 1, self.header_bytes, self.header_bytes)


class Collective(ABC):
    """A way to combine everybody's payloads."""

    ordered: ClassVar[bool] = False
    """Whether all workers must launch the exchanges in the same order, one at a time (backend collectives)."""

    def num_voters(self, num_workers: int) -> int:
        return num_workers

    def resolve(self, codec: Codec, layout: Layout, comm: Comm) -> Collective:
        """The collective to use for one bucket; raises :class:`ConfigError` where ``codec`` cannot be combined."""
        codec.check(comm.size)
        return self

    def codec_for(self, codec: Codec, num_workers: int) -> Codec:
        """The codec as this collective uses it. With a single voter nothing needs to be lost: that is Lion."""
        return codec if self.num_voters(num_workers) > 1 else SINGLE_VOTER

    def first_codec(self, codec: Codec) -> Codec:
        """What a worker encodes with before :meth:`exchange`."""
        return codec

    def exchange(self, mail: Envelope, codec: Codec, payload: Tensor, dtype: torch.dtype) -> Steps[Outcome]:
        """The exchange of one bucket, whose payload :meth:`first_codec` made of update vectors of ``dtype``."""
        if mail.size == 1:  # a single voter's payload is the outcome
            mail.headers, mail.sent, combined = (mail.header,), payload.unsqueeze(0), payload
            yield Pending()
        else:
            combining = self.combine(mail, codec, payload)
            del payload  # collectives drop it once a message has it
            combined = yield from combining
        assert mail.sent is not None
        sent = mail.sent.view(len(mail.sent), -1, codec.up_block_bytes)
        return Outcome(codec, combined, mail.ballot(), sent, mail.index, mail.headers)

    @abstractmethod
    def combine(self, mail: Envelope, codec: Codec, payload: Tensor) -> Steps[Tensor]:
        """Everybody's payloads combined, ``[blocks, bytes]``, the same on all workers."""

    @abstractmethod
    def traffic(self, wire: Wire, comm: Comm) -> Traffic:
        """What one exchange moves, seen from ``comm.index``."""
