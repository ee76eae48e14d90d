"""Distributed Lion as its paper draws it: a central server."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
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
    roll_call,
)
from lioncub.errors import PeerError, PeerLostError
from lioncub.kernels.layout import Ballot
from lioncub.transport.comm import Comm, Pending
from lioncub.wire import checksums


@dataclass(frozen=True)
class Server(Collective):
    """Distributed Lion's central server: the first worker combines everything and answers.

    Headers go directly from everybody to everybody: a worker that only heard from the server would blame the server for
    whoever keeps it waiting. A worker that the server loses in mid-transfer is named in the answer to the others.
    """

    NOTICE: ClassVar[int] = 8
    """Bytes at the start of the answer: 0, or one more than the rank of a lost worker."""

    def exchange_payload(self, comm: Comm, parcel: Parcel, payload: Tensor, first_block: int = 0) -> Exchange:
        headers = yield from roll_call(comm, parcel)
        ballot = ballot_part(parcel, headers, first_block, len(payload))
        if comm.index == 0:
            combined = yield from self._serve(comm, parcel, payload, ballot)
        else:
            combined = yield from self._ask(comm, parcel, payload)
        return Outcome(parcel.codec, combined, ballot, payload.unsqueeze(0), comm.index, headers)

    def _serve(self, comm: Comm, parcel: Parcel, payload: Tensor, ballot: Ballot) -> Generator[Pending, None, Tensor]:
        own = _sealed(payload, comm)
        room = comm.room(len(own))
        inbox = room[:, : len(own)]
        inbox[0] = own
        clients = range(1, comm.size)
        try:
            yield comm.swap({}, {peer: room[peer] for peer in clients}, parcel.tag + 1)
        except PeerLostError as problem:
            self._give_notice(comm, parcel, len(payload), problem)
            raise
        damaged = checksums.broken(inbox)
        votes = inbox[:, : -checksums.SEAL].view(comm.size, *payload.shape)
        combined = parcel.codec.combine(votes, ballot)
        answer = torch.cat([combined.new_zeros(self.NOTICE), combined.view(-1)])
        answer = _sealed(answer, comm, comm.global_rank(damaged[0]) + 1 if damaged else 0)
        yield comm.swap(dict.fromkeys(clients, answer), {}, parcel.tag + 2)
        checksums.check(answer.unsqueeze(0), [comm.global_rank(0)])
        return combined

    def _ask(self, comm: Comm, parcel: Parcel, payload: Tensor) -> Generator[Pending, None, Tensor]:
        room = comm.room(num_bytes := self._answer_bytes(comm, parcel, len(payload)))[0]
        yield comm.swap({0: _sealed(payload, comm)}, {}, parcel.tag + 1)
        yield comm.swap({}, {0: room}, parcel.tag + 2)
        answer = room[:num_bytes]
        checksums.check(answer.unsqueeze(0), [comm.global_rank(0)])
        lost = int(answer[: self.NOTICE].view(torch.int64)[0]) - 1
        if lost >= 0:
            raise PeerLostError([lost], f"reported by the server, worker {comm.global_rank(0)}")
        return answer[self.NOTICE : -checksums.SEAL].view(len(payload), -1)

    def _give_notice(self, comm: Comm, parcel: Parcel, blocks: int, problem: PeerError) -> None:
        answer = torch.zeros(self._answer_bytes(comm, parcel, blocks), dtype=torch.uint8, device=comm.device)
        answer[: self.NOTICE].view(torch.int64)[0] = problem.ranks[0] + 1
        answer = _sealed(answer[: -checksums.SEAL], comm)
        survivors = [peer for peer in range(1, comm.size) if comm.global_rank(peer) not in problem.ranks]
        comm.swap(dict.fromkeys(survivors, answer), {}, parcel.tag + 2).wait()

    def _answer_bytes(self, comm: Comm, parcel: Parcel, blocks: int) -> int:
        return self.NOTICE + blocks * parcel.codec.down_block_bytes(comm.size) + checksums.SEAL

    def traffic(self, wire: Wire, comm: Comm) -> Traffic:
        headers = Traffic.with_each(comm.size - 1, wire.header_bytes, wire.header_bytes)
        up = wire.blocks * wire.up_block_bytes + checksums.SEAL
        down = self.NOTICE + wire.blocks * wire.down_block_bytes + checksums.SEAL
        if comm.size == 1:
            return Traffic()
        if comm.index == 0:
            return headers + Traffic.with_each(comm.size - 1, down, up)
        return headers + Traffic.with_each(1, up, down)


def _sealed(message: Tensor, comm: Comm, notice: int = 0) -> Tensor:
    return checksums.with_seal(message.reshape(1, -1), device=comm.device, notice=notice)[0]
