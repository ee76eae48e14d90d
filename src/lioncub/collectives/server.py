"""Distributed Lion as its paper draws it: a central server."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

import torch
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
from lioncub.comm import Comm
from lioncub.errors import PeerError, PeerLostError


@dataclass(frozen=True)
class Server(Collective):
    """Distributed Lion's central server: the first worker combines everything and answers.

    Its answer begins with all headers. When the server loses a worker it tells the others, who would otherwise blame
    the server: the answer then starts with the lost worker's rank instead.
    """

    NOTICE: ClassVar[int] = 8
    PATIENCE: ClassVar[timedelta] = timedelta(seconds=2)
    """How much longer than the time-out a worker waits for the server, whose own time-out must come first."""

    def exchange_payload(self, comm: Comm, parcel: Parcel, payload: Tensor, first_block: int = 0) -> Exchange:
        serve = self._serve if comm.index == 0 else self._ask
        row = torch.cat([parcel.header.pack().to(payload.device), payload.reshape(-1)]).to(comm.device)
        return (yield from serve(comm, parcel, payload, first_block, row))

    def _serve(self, comm: Comm, parcel: Parcel, payload: Tensor, first_block: int, row: Tensor) -> Exchange:
        inbox = row.new_empty(comm.size, row.numel())
        inbox[0] = row
        clients = range(1, comm.size)
        try:
            yield comm.swap({}, {peer: inbox[peer] for peer in clients}, parcel.tag)
        except PeerError as problem:
            self._give_notice(comm, parcel, len(payload), problem)
            raise
        headers = unpack_headers(inbox[:, : parcel.header_bytes])
        ballot = ballot_part(parcel, headers, first_block, len(payload))
        votes = inbox[:, parcel.header_bytes :].view(comm.size, len(payload), -1)
        combined = parcel.codec.combine(votes, ballot)
        notice = torch.zeros(self.NOTICE, dtype=torch.uint8, device=row.device)
        answer = torch.cat([notice, inbox[:, : parcel.header_bytes].reshape(-1), combined.view(-1)])
        yield comm.swap(dict.fromkeys(clients, answer), {}, parcel.tag + 1)
        return Outcome(parcel.codec, combined, ballot, payload, 0, headers)

    def _give_notice(self, comm: Comm, parcel: Parcel, blocks: int, problem: PeerError) -> None:
        answer = torch.zeros(self._answer_bytes(comm, parcel, blocks), dtype=torch.uint8, device=comm.device)
        answer[: self.NOTICE].view(torch.int64)[0] = problem.ranks[0] + 1
        lost = set(problem.ranks)
        for peer in range(1, comm.size):
            if comm.global_rank(peer) not in lost:
                comm.swap({peer: answer}, {}, parcel.tag + 1)

    def _ask(self, comm: Comm, parcel: Parcel, payload: Tensor, first_block: int, row: Tensor) -> Exchange:
        yield comm.swap({0: row}, {}, parcel.tag)
        answer = row.new_empty(self._answer_bytes(comm, parcel, len(payload)))
        yield comm.swap({}, {0: answer}, parcel.tag + 1, patience=self.PATIENCE)

        lost = int(answer[: self.NOTICE].view(torch.int64)[0]) - 1
        if lost >= 0:
            raise PeerLostError(
                f"the server, worker {comm.global_rank(0)}, lost worker {lost}. Restart the job", [lost]
            )
        end = self.NOTICE + comm.size * parcel.header_bytes
        headers = unpack_headers(answer[self.NOTICE : end].view(comm.size, -1))
        ballot = ballot_part(parcel, headers, first_block, len(payload))
        combined = answer[end:].view(len(payload), -1)
        return Outcome(parcel.codec, combined, ballot, payload, comm.index, headers)

    def _answer_bytes(self, comm: Comm, parcel: Parcel, blocks: int) -> int:
        down = parcel.codec.down_block_bytes(comm.size)
        return self.NOTICE + comm.size * parcel.header_bytes + blocks * down

    def traffic(self, wire: Wire, comm: Comm) -> Traffic:
        up = wire.header_bytes + wire.blocks * wire.up_block_bytes
        down = self.NOTICE + comm.size * wire.header_bytes + wire.blocks * wire.down_block_bytes
        if comm.size == 1:
            return Traffic()
        return Traffic.with_each(comm.size - 1, down, up) if comm.index == 0 else Traffic.with_each(1, up, down)
