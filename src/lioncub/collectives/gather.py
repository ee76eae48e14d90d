"""Everything to everybody: one phase, for few workers, small buckets, and settings where no owner is trusted."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

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
from lioncub.transport.comm import Comm
from lioncub.wire import checksums


@dataclass(frozen=True)
class GatherAll(Collective):
    """Everybody sends everything to everybody and combines alone: one phase, no owner to trust, (n-1)·p bits."""

    def exchange_payload(self, comm: Comm, parcel: Parcel, payload: Tensor, first_block: int = 0) -> Exchange:
        head = parcel.header.pack().to(payload.device)
        rows = checksums.with_seal(head.unsqueeze(0), payload.reshape(1, -1), device=comm.device)
        inbox, pending = comm.all_gather(rows[0], parcel.tag)
        yield pending

        checksums.check(inbox, comm.global_ranks)
        headers = unpack_headers(inbox[:, : parcel.header_bytes])
        ballot = ballot_part(parcel, headers, first_block, len(payload))
        votes = inbox[:, parcel.header_bytes : -checksums.SEAL].view(comm.size, len(payload), -1)
        combined = parcel.codec.combine(votes, ballot)
        return Outcome(parcel.codec, combined, ballot, payload.unsqueeze(0), comm.index, headers)

    def traffic(self, wire: Wire, comm: Comm) -> Traffic:
        message = wire.header_bytes + wire.blocks * wire.up_block_bytes + checksums.SEAL
        return Traffic.with_each(comm.size - 1, message, message)
