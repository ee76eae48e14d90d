"""Distributed Lion as its paper draws it: a central server."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from lioncub.codecs import Codec
from lioncub.collectives.base import Collective, Traffic, Wire
from lioncub.transport.comm import Comm
from lioncub.wire.envelope import Envelope, Steps


@dataclass(frozen=True)
class Server(Collective):
    """Distributed Lion's central server: the first worker combines everything and answers."""

    def combine(self, mail: Envelope, codec: Codec, payload: Tensor) -> Steps[Tensor]:
        votes, answer = (yield from mail.gather(payload)), None
        if votes is not None:
            answer = codec.combine(votes.view(mail.size, *payload.shape), mail.ballot(0, len(payload)))
        combined = yield from mail.broadcast(answer, len(payload) * codec.down_block_bytes(mail.size))
        return combined.view(len(payload), -1)

    def traffic(self, wire: Wire, comm: Comm) -> Traffic:
        up, down, num_clients = wire.up(wire.blocks), wire.answer, comm.size - 1
        if not num_clients:
            return Traffic()
        served = Traffic.with_each(1, up, down) if comm.index else Traffic.with_each(num_clients, down, up)
        return wire.headers(comm.size) + served
