"""A collective from outside the library: everything to everybody, but each worker combines one shard of it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from lioncub.collectives import Codec, Collective, Comm, Envelope, Steps, Traffic, Wire


@dataclass(frozen=True)
class SharedCount(Collective):
    def combine(self, mail: Envelope, codec: Codec, payload: Tensor) -> Steps[Tensor]:
        blocks, mine = len(payload), len(payload) // mail.size
        votes = (yield from mail.all_gather(payload)).view(mail.size, blocks, -1)
        first = mail.index * mine
        winners = codec.combine(votes[:, first : first + mine], mail.ballot(first, mine))
        return (yield from mail.all_gather(winners)).reshape(blocks, -1)

    def traffic(self, wire: Wire, comm: Comm) -> Traffic:
        up, down = wire.up(wire.blocks, first=True), wire.down(wire.blocks // comm.size)
        return Traffic.with_each(comm.size - 1, up, up) + Traffic.with_each(comm.size - 1, down, down)
