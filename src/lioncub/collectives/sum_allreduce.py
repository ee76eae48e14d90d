"""The p-bit allreduce as the paper has it: the backend adds up."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from lioncub.codecs import Codec
from lioncub.collectives.base import SINGLE_VOTER, Collective, Traffic, Wire
from lioncub.errors import ConfigError
from lioncub.transport.comm import Comm
from lioncub.wire.envelope import Envelope, Steps


@dataclass(frozen=True)
class SumAllReduce(Collective):
    """The backend's own allreduce, for codecs whose payloads add up: the paper's p-bit allreduce, and ``Dense``.

    Headers go ahead point-to-point: only they can name a worker that is missing.
    """

    ordered = True

    def codec_for(self, codec: Codec, num_workers: int) -> Codec:
        summand = codec.summand(num_workers)
        if summand is None:
            raise ConfigError(
                f'collective "sum" cannot add up {codec} payloads: use Levels(bits, grid="midtread") or Dense(), or '
                'collective "two-phase", "gather" or "server"'
            )
        return summand if num_workers > 1 else SINGLE_VOTER

    def combine(self, mail: Envelope, codec: Codec, payload: Tensor) -> Steps[Tensor]:
        assert codec.sum_dtype is not None, "codec_for() admits codecs that add up only"
        return (yield from mail.all_reduce(payload, codec.sum_dtype))

    def traffic(self, wire: Wire, comm: Comm) -> Traffic:
        ring = 2 * (comm.size - 1) * -(-wire.blocks * wire.up_block_bytes // comm.size)
        return wire.headers(comm.size) + Traffic(ring, ring, 2 * (comm.size - 1))
