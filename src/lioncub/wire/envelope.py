"""What a message looks like, and the patterns in which the messages of one exchange travel.

    first to everybody    [ header | payload | notice, checksum ]
    all later ones        [ payload | notice, checksum ]

Collectives and momentum synchronisation see payloads only. Patterns that do not reach everybody have the headers ahead
of them, from everybody to everybody: all know who takes part, and all miss the same workers. What one worker alone can
see before its last message, damaged payloads or a lost peer, is told to the others in it, so that all raise together.

Every pattern is a generator: it yields a :class:`~lioncub.transport.comm.Pending` and is resumed when that is complete.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

import torch
from torch import Tensor

from lioncub.errors import ConfigError, PeerLostError
from lioncub.kernels.layout import BLOCK, Ballot, Layout
from lioncub.transport.comm import Comm, Pending
from lioncub.wire import checksums, consensus
from lioncub.wire.headers import Header

T = TypeVar("T")
Steps: TypeAlias = Generator[Pending, None, T]

TAGS_PER_EXCHANGE = 8
"""Messages of one exchange that may be in flight between the same two workers."""

LOST = 8
"""Bytes at the start of what a root answers: 0, or one more than the rank of a worker that it has lost."""


class Envelope:
    """One worker's side of the messages of one exchange. Payloads are bytes, ``[rows, bytes]`` or ``[bytes]``.

    ``first_block``: where in the bucket the payload begins. ``headers``: everybody's, where they are known already.
    ``collectives``: by the backend's all-to-all and all-gather instead of messages from one worker to another.
    """

    def __init__(
        self,
        comm: Comm,
        layout: Layout,
        header: Header,
        tag: int,
        *,
        headers: tuple[Header, ...] = (),
        first_block: int = 0,
        collectives: bool = False,
        last_tag: int | None = None,
    ) -> None:
        self.comm = comm
        self.layout = layout
        self.header = header
        self.tag = tag
        self.headers = headers
        self.first_block = first_block
        self.collectives = collectives
        self.sent: Tensor | None = None
        """The payload of this worker's first message, ``[rows, bytes]``."""
        self._next_tag = tag
        self._last_tag = tag + TAGS_PER_EXCHANGE - 1 if last_tag is None else last_tag
        self._notice = 0
        self._lost: PeerLostError | None = None

    @property
    def size(self) -> int:
        return self.comm.size

    @property
    def index(self) -> int:
        return self.comm.index

    def ballot(self, first: int = 0, blocks: int | None = None) -> Ballot:
        """Who votes on blocks of the payload; without arguments, on all of the bucket."""
        ballot = consensus.ballot(self.headers, self.layout, self.header.step)
        if blocks is None:
            return ballot
        start = self.first_block + first
        return ballot.part(start * BLOCK, (start + blocks) * BLOCK)

    # ---- patterns ---------------------------------------------------------------------------------------------------

    def exchange_headers(self) -> Steps[None]:
        """Everybody's header, from everybody, where they are not known yet."""
        if not self.headers:
            inbox, pending = self.comm.all_gather(self.header.pack().to(self.comm.device), self._new_tag())
            yield pending
            self.headers = unpack_headers(inbox)

    def all_to_all(self, rows: Tensor) -> Steps[Tensor]:
        """Row j goes to worker j; returns row j of worker j, ``[size, bytes]``. Damage is told in the next message."""
        head_bytes = self._head_bytes
        message = self._sealed(rows)
        del rows  # the message has a copy: the original can go
        inbox, pending = self.comm.all_to_all(message, self._new_tag(), collectives=self.collectives)
        yield pending
        damaged = checksums.broken(inbox)
        if damaged:  # all workers are about to raise: nothing that came is looked at before they are told
            self._notice = self.comm.global_rank(damaged[0]) + 1
            inbox[:] = inbox[self.index].clone()
        if head_bytes:
            self.headers = unpack_headers(inbox[:, :head_bytes])
        return inbox[:, head_bytes : -checksums.SEAL]

    def all_gather(self, row: Tensor) -> Steps[Tensor]:
        """Everybody's row, ``[size, bytes]``."""
        head_bytes = self._head_bytes
        message = self._sealed(row.reshape(1, -1))[0]
        inbox, pending = self.comm.all_gather(message, self._new_tag(), collectives=self.collectives)
        yield pending
        checksums.check(inbox, self.comm.global_ranks)
        if head_bytes:
            self.headers = unpack_headers(inbox[:, :head_bytes])
        return inbox[:, head_bytes : -checksums.SEAL]

    def gather(self, row: Tensor) -> Steps[Tensor | None]:
        """Everybody's row on the first worker, ``[size, bytes]``; None on the others."""
        yield from self.exchange_headers()
        message, tag = self._sealed(row.reshape(1, -1))[0], self._new_tag()
        if self.index:
            yield self.comm.swap({0: message}, {}, tag)
            return None
        room = self.comm.room(len(message))
        inbox = room[:, : len(message)]
        inbox[0] = message
        try:
            yield self.comm.swap({}, {peer: room[peer] for peer in range(1, self.size)}, tag)
        except PeerLostError as problem:
            self._lost = problem
        if not self._lost and (damaged := checksums.broken(inbox)):
            self._notice = self.comm.global_rank(damaged[0]) + 1
        if self._lost or self._notice:
            inbox[:] = message
        return inbox[:, : -checksums.SEAL]

    def broadcast(self, row: Tensor | None, num_bytes: int) -> Steps[Tensor]:
        """The first worker's row of so many bytes, on everybody."""
        tag, root = self._new_tag(), self.comm.global_rank(0)
        if row is None:
            expected = answer_bytes(num_bytes)
            room = self.comm.room(expected)[0]
            yield self.comm.swap({}, {0: room}, tag)
            message = room[:expected]
        else:
            lost = torch.tensor([self._lost.ranks[0] + 1 if self._lost else 0]).view(torch.uint8).to(row.device)
            message = self._sealed(torch.cat([lost, row.reshape(-1)]).unsqueeze(0))[0]
            gone = self._lost.ranks if self._lost else ()
            living = [peer for peer in range(1, self.size) if self.comm.global_rank(peer) not in gone]
            pending = self.comm.swap(dict.fromkeys(living, message), {}, tag)
            if self._lost:
                pending.wait()
                raise self._lost
            yield pending
        checksums.check(message.unsqueeze(0), [root])
        if rank := int(message[:LOST].cpu().view(torch.int64)[0]):
            raise PeerLostError([rank - 1], f"reported by the server, worker {root}")
        return message[LOST : -checksums.SEAL]

    def all_reduce(self, values: Tensor, dtype: torch.dtype) -> Steps[Tensor]:
        """The sum over the workers, as numbers of this type, by the backend: the one pattern without a checksum."""
        yield from self.exchange_headers()
        self.sent = values.unsqueeze(0)
        total = values.to(self.comm.device).clone()
        yield self.comm.all_reduce(total.view(dtype))
        return total

    def among(
        self,
        comm: Comm,
        tag: int,
        *,
        header: Header | None = None,
        headers: tuple[Header, ...] = (),
        first_block: int = 0,
    ) -> Envelope:
        """Messages among some of the workers, for a part of this exchange; ``tag`` counts from this one's first."""
        return Envelope(
            comm,
            self.layout,
            header or self.header,
            self.tag + tag,
            headers=headers,
            first_block=first_block,
            last_tag=self._last_tag,
        )

    # ---- inside -----------------------------------------------------------------------------------------------------

    @property
    def _head_bytes(self) -> int:
        """Of the next message."""
        return 0 if self.headers else Header.num_bytes(len(self.layout.lengths))

    def _new_tag(self) -> int:
        if self._next_tag > self._last_tag:
            raise ConfigError(f"a collective has {TAGS_PER_EXCHANGE} patterns of messages for an exchange, and no more")
        self._next_tag += 1
        return self._next_tag - 1

    def _sealed(self, rows: Tensor) -> Tensor:
        head_bytes = self._head_bytes
        head = (self.header.pack().to(rows.device).expand(len(rows), -1),) if head_bytes else ()
        message = checksums.with_seal(*head, rows, device=self.comm.device, notice=self._notice)
        if self.sent is None:
            self.sent = message[:, head_bytes : -checksums.SEAL]
        return message


def unpack_headers(rows: Tensor) -> tuple[Header, ...]:
    data, width = rows.cpu().numpy().tobytes(), rows.shape[1]
    return tuple(Header.parse(data[start : start + width]) for start in range(0, len(data), width))


def joined(rows: Tensor) -> Tensor:
    """Rows one after another, in memory of their own."""
    return checksums.side_by_side(rows).view(-1)


def first_message_bytes(num_tensors: int, payload_bytes: int) -> int:
    """Of a message that brings its sender's header."""
    return Header.num_bytes(num_tensors) + later_message_bytes(payload_bytes)


def later_message_bytes(payload_bytes: int) -> int:
    return payload_bytes + checksums.SEAL


def answer_bytes(payload_bytes: int) -> int:
    """Of a message of :meth:`Envelope.broadcast`."""
    return LOST + later_message_bytes(payload_bytes)
