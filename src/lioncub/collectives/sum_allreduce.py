"""The p-bit allreduce as the paper has it: the backend adds up."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from lioncub.codecs import Codec
from lioncub.collectives.base import (
    SINGLE_VOTER,
    Collective,
    Exchange,
    Outcome,
    Parcel,
    Traffic,
    Wire,
    ballot_part,
    roll_call,
)
from lioncub.errors import ConfigError
from lioncub.transport.comm import Comm


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

    def exchange_payload(self, comm: Comm, parcel: Parcel, payload: Tensor, first_block: int = 0) -> Exchange:
        headers = yield from roll_call(comm, parcel)
        ballot = ballot_part(parcel, headers, first_block, len(payload))

        dtype = parcel.codec.sum_dtype
        assert dtype is not None, "codec_for() admits codecs that add up only"
        total = payload.to(comm.device).clone()
        yield comm.all_reduce(total.view(dtype))
        return Outcome(parcel.codec, total, ballot, payload.unsqueeze(0), comm.index, headers)

    def traffic(self, wire: Wire, comm: Comm) -> Traffic:
        headers = Traffic.with_each(comm.size - 1, wire.header_bytes, wire.header_bytes)
        ring = 2 * (comm.size - 1) * -(-wire.blocks * wire.up_block_bytes // comm.size)
        return headers + Traffic(ring, ring, 2 * (comm.size - 1))
