"""How payloads travel, in how many bytes and messages.

An exchange is a generator: it yields a :class:`~lioncub.transport.comm.Pending` after each launch and is resumed when
that is complete, so that overlapping code still reads top to bottom. It returns an :class:`Outcome`, the same on every
worker.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor

from lioncub.codecs import Codec, Vote
from lioncub.kernels.layout import BLOCK, Ballot, Layout
from lioncub.transport.comm import Comm, Pending
from lioncub.wire import consensus
from lioncub.wire.headers import Header

Exchange: TypeAlias = Generator[Pending, None, "Outcome"]

SINGLE_VOTER = Vote(zeros="abstain")
"""Two bits hold -1, 0 and 1: with nobody to combine with, the sign itself."""

TAGS_PER_EXCHANGE = 8
"""Messages of one exchange that may be in flight between the same two workers."""


@dataclass(frozen=True)
class Parcel:
    """What one worker brings to the exchange of one bucket."""

    codec: Codec
    layout: Layout
    header: Header
    dtype: torch.dtype
    """The precision of the update vector."""
    tag: int

    @property
    def header_bytes(self) -> int:
        return Header.num_bytes(len(self.layout.lengths))


@dataclass(frozen=True)
class Outcome:
    """The result of an exchange."""

    codec: Codec
    combined: Tensor
    ballot: Ballot
    payload: Tensor
    """What this worker (or its node) sent, ``[shards, blocks, bytes]``."""
    voter: int
    """This worker's (or its node's) number among the voters."""
    headers: tuple[Header, ...]
    """Every worker's header."""


@dataclass(frozen=True)
class Traffic:
    """Bytes that one worker hands to the network for one exchange, and gets from it."""

    sent_bytes: int = 0
    received_bytes: int = 0
    num_messages: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.sent_bytes + other.sent_bytes,
            self.received_bytes + other.received_bytes,
            self.num_messages + other.num_messages,
        )

    @classmethod
    def with_each(cls, num_peers: int, sent_bytes: int, received_bytes: int) -> Traffic:
        """The same with each of some peers; empty messages are not sent."""
        return cls(num_peers * sent_bytes, num_peers * received_bytes, num_peers * (sent_bytes > 0))


@dataclass(frozen=True)
class Wire:
    """The sizes on which traffic depends: of the blocks, and of what is sent for each."""

    blocks: int
    up_block_bytes: int
    down_block_bytes: int
    header_bytes: int

    @classmethod
    def of(cls, codec: Codec, layout: Layout, num_voters: int) -> Wire:
        header_bytes = Header.num_bytes(len(layout.lengths))
        return cls(layout.blocks, codec.up_block_bytes, codec.down_block_bytes(num_voters), header_bytes)


class Collective(ABC):
    """A way to combine everybody's payloads."""

    ordered: ClassVar[bool] = False
    """Whether all workers must launch the exchanges in the same order, one at a time (backend collectives)."""

    def num_voters(self, num_workers: int) -> int:
        return num_workers

    def resolve(self, codec: Codec, layout: Layout, comm: Comm) -> Collective:
        """The collective to use for one bucket; raises :class:`ConfigError` where ``codec`` cannot be combined."""
        codec.check(comm.size)
        return self

    def codec_for(self, codec: Codec, num_workers: int) -> Codec:
        """The codec as this collective uses it. With a single voter nothing needs to be lost: that is Lion."""
        return codec if self.num_voters(num_workers) > 1 else SINGLE_VOTER

    def first_codec(self, codec: Codec) -> Codec:
        """What a worker encodes with before :meth:`exchange`."""
        return codec

    def exchange(self, comm: Comm, parcel: Parcel, payload: Tensor) -> Exchange:
        """Combine one bucket, whose payload :meth:`first_codec` made."""
        return self.exchange_payload(comm, parcel, payload) if comm.size > 1 else _alone(parcel, payload)

    @abstractmethod
    def exchange_payload(self, comm: Comm, parcel: Parcel, payload: Tensor, first_block: int = 0) -> Exchange:
        """Combine ``payload``, which starts at block ``first_block`` of the bucket."""

    @abstractmethod
    def traffic(self, wire: Wire, comm: Comm) -> Traffic:
        """What one exchange moves, seen from ``comm.index``."""


def _alone(parcel: Parcel, payload: Tensor) -> Exchange:
    """A single voter's payload is the outcome."""
    headers = (parcel.header,)
    ballot = consensus.ballot(headers, parcel.layout, parcel.header.step)
    yield Pending()
    return Outcome(parcel.codec, payload, ballot, payload.unsqueeze(0), 0, headers)


def ballot_part(parcel: Parcel, headers: tuple[Header, ...], first_block: int, blocks: int) -> Ballot:
    ballot = consensus.ballot(headers, parcel.layout, parcel.header.step)
    return ballot.part(first_block * BLOCK, (first_block + blocks) * BLOCK)


def unpack_headers(rows: Tensor) -> tuple[Header, ...]:
    data, width = rows.cpu().numpy().tobytes(), rows.shape[1]
    return tuple(Header.parse(data[start : start + width]) for start in range(0, len(data), width))


def roll_call(comm: Comm, parcel: Parcel) -> Generator[Pending, None, tuple[Header, ...]]:
    """Everybody's header, from everybody. Who is missing is missed here by all, and named by all."""
    inbox, pending = comm.all_gather(parcel.header.pack().to(comm.device), parcel.tag)
    yield pending
    return unpack_headers(inbox)
