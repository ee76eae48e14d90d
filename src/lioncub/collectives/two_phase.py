"""Lion Cub's 1-bit allreduce: the same number of bits per worker, whatever the number of workers."""

from __future__ import annotations

from collections.abc import Generator
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
from lioncub.errors import ConfigError
from lioncub.kernels.layout import BLOCK, Layout
from lioncub.transport.comm import Comm, Pending, TransportName
from lioncub.wire import checksums


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
        head = parcel.header.pack().to(shards.device).expand(comm.size, -1)
        rows = checksums.with_seal(head, shards, device=comm.device)
        contents = slice(parcel.header_bytes, -checksums.SEAL)
        sent = payload = shards = rows[:, contents].view(comm.size, -1, up)  # the original can go
        inbox, pending = comm.all_to_all(rows, parcel.tag, collectives=self.ordered)
        yield pending

        if damaged := checksums.broken(inbox):
            yield from self._give_notice(comm, parcel, blocks, damaged[0])
        headers = unpack_headers(inbox[:, : parcel.header_bytes])
        ballot = ballot_part(parcel, headers, first_block, blocks)
        mine = blocks // comm.size * BLOCK
        votes = inbox[:, contents].view(comm.size, -1, up)
        winners = parcel.codec.combine(votes, ballot.part(comm.index * mine, (comm.index + 1) * mine))
        del inbox, votes, pending  # before the winners need room
        answers, pending = self._tell(comm, parcel, winners)
        yield pending

        checksums.check(answers, comm.global_ranks)
        return Outcome(parcel.codec, checksums.opened(answers).view(blocks, -1), ballot, sent, comm.index, headers)

    def _tell(self, comm: Comm, parcel: Parcel, winners: Tensor, notice: int = 0) -> tuple[Tensor, Pending]:
        row = checksums.with_seal(winners.view(1, -1), device=comm.device, notice=notice)[0]
        return comm.all_gather(row, parcel.tag + 1, collectives=self.ordered)

    def _give_notice(self, comm: Comm, parcel: Parcel, blocks: int, sender: int) -> Generator[Pending, None, None]:
        """Tell everybody, instead of winners, whose votes came damaged: all raise together."""
        nothing = torch.zeros(blocks // comm.size, parcel.codec.down_block_bytes(comm.size), dtype=torch.uint8)
        answers, pending = self._tell(comm, parcel, nothing.to(comm.device), comm.global_rank(sender) + 1)
        yield pending
        checksums.check(answers, comm.global_ranks)

    def traffic(self, wire: Wire, comm: Comm) -> Traffic:
        shard = wire.blocks // comm.size
        up = wire.header_bytes + shard * wire.up_block_bytes + checksums.SEAL
        down = shard * wire.down_block_bytes + checksums.SEAL
        return Traffic.with_each(comm.size - 1, up, up) + Traffic.with_each(comm.size - 1, down, down)


class _TwoPhaseCollectives(TwoPhase):
    """:class:`TwoPhase` by the backend's all-to-all and all-gather, which every worker must launch in one order."""

    ordered = True
