"""Everything to everybody: one phase, for few workers, small buckets, and settings where no owner is trusted."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from lioncub.codecs import Codec
from lioncub.collectives.base import Collective, Traffic, Wire
from lioncub.transport.comm import Comm
from lioncub.wire.envelope import Envelope, Steps


@dataclass(frozen=True)
class GatherAll(Collective):
    """Everybody sends everything to everybody and combines alone: one phase, no owner to trust, (n-1)·p bits."""

    def combine(self, mail: Envelope, codec: Codec, payload: Tensor) -> Steps[Tensor]:
        votes = yield from mail.all_gather(payload)
        return codec.combine(votes.view(mail.size, *payload.shape), mail.ballot(0, len(payload)))

    def traffic(self, wire: Wire, comm: Comm) -> Traffic:
        message = wire.up(wire.blocks, first=True)
        return Traffic.with_each(comm.size - 1, message, message)
