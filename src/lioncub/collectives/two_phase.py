"""Lion Cub's 1-bit allreduce: the same number of bits per worker, whatever the number of workers."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from lioncub.codecs import Codec
from lioncub.collectives.base import Collective, Traffic, Wire
from lioncub.errors import ConfigError
from lioncub.kernels.layout import Layout
from lioncub.transport.comm import Comm, TransportName
from lioncub.wire.envelope import Envelope, Steps, joined


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

    def combine(self, mail: Envelope, codec: Codec, payload: Tensor) -> Steps[Tensor]:
        blocks, mine = len(payload), len(payload) // mail.size
        to_owners = mail.all_to_all(payload.view(mail.size, -1))
        del payload  # the messages have it
        votes = (yield from to_owners).view(mail.size, mine, -1)
        winners = codec.combine(votes, mail.ballot(mail.index * mine, mine))
        del votes  # before the winners need room
        return joined((yield from mail.all_gather(winners))).view(blocks, -1)

    def traffic(self, wire: Wire, comm: Comm) -> Traffic:
        shard = wire.blocks // comm.size
        up, down = wire.up(shard, first=True), wire.down(shard)
        return Traffic.with_each(comm.size - 1, up, up) + Traffic.with_each(comm.size - 1, down, down)


class _TwoPhaseCollectives(TwoPhase):
    """:class:`TwoPhase` by the backend's all-to-all and all-gather, which every worker must launch in one order."""

    ordered = True
