"""Lion Cub's 1-bit allreduce: the same number of bits per worker, whatever the number of workers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lioncub.codecs import Codec
from lioncub.collectives.base import (
    Collective,
    Exchange,
    Outcome,
    Parcel,
    Traffic,
    Wire,
    ballot_part,
    unpack_headers,
)
from lioncub.comm import Comm, TransportName
from lioncub.errors import ConfigError
from lioncub.layout import BLOCK, Layout


@dataclass(frozen=True)
class TwoPhase(Collective):
    """The 1-bit allreduce of Lion Cub: shards to their owners, owners combine, winners to everybody.

    1. worker j gets shard j of every worker's payload, with its header;
    2. it combines them;
    3. everybody gets every shard's outcome.
    """

    transport: TransportName = "auto"

    def __post_init__(self) -> None:
        if self.transport not in ("auto", "point-to-point", "collectives"):
            raise ConfigError(
                f'TwoPhase(transport={self.transport!r}): choose "auto", "point-to-point" or "collectives"'
            )

    def resolve(self, codec: Codec, layout: Layout, comm: Comm) -> Collective:
        super().resolve(codec, layout, comm)
        if self.transport == "collectives" and not comm.native:
            raise ConfigError('TwoPhase("collectives") needs a process group of its own: use TwoPhase() between nodes')
        if self.transport == "collectives" or (self.transport == "auto" and not comm.prefers_point_to_point()):
            return _TwoPhaseCollectives("collectives")
        return self

    def exchange_payload(self, comm: Comm, parcel: Parcel, payload: Tensor, first_block: int = 0) -> Exchange:
        blocks, up = payload.shape
        shards = payload.view(comm.size, -1)
        rows = torch.cat([parcel.header.pack().to(shards.device).expand(comm.size, -1), shards], dim=1).to(comm.device)
        sent = payload = shards = rows[:, parcel.header_bytes :].view(comm.size, -1, up)  # the original can go
        inbox, pending = comm.all_to_all(rows, parcel.tag, collectives=self.ordered)
        yield pending

        headers = unpack_headers(inbox[:, : parcel.header_bytes])
        ballot = ballot_part(parcel, headers, first_block, blocks)
        mine = blocks // comm.size * BLOCK
        votes = inbox[:, parcel.header_bytes :].view(comm.size, -1, up)
        winners = parcel.codec.combine(votes, ballot.part(comm.index * mine, (comm.index + 1) * mine))
        del inbox, votes, pending  # before the winners need room
        gathered, pending = comm.all_gather(winners.view(-1), parcel.tag + 1, collectives=self.ordered)
        yield pending

        return Outcome(parcel.codec, gathered.view(blocks, -1), ballot, sent, comm.index, headers)

    def traffic(self, wire: Wire, comm: Comm) -> Traffic:
        shard = wire.blocks // comm.size
        up = wire.header_bytes + shard * wire.up_block_bytes
        down = shard * wire.down_block_bytes
        return Traffic.with_each(comm.size - 1, up, up) + Traffic.with_each(comm.size - 1, down, down)


class _TwoPhaseCollectives(TwoPhase):
    """:class:`TwoPhase` by the backend's all-to-all and all-gather, which every worker must launch in one order."""

    ordered = True
