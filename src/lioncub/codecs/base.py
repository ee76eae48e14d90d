"""The interface of codecs: encoding, combination and decoding of payloads, and their size.

A codec never sees a process group. A payload is ``uint8 [blocks, bytes]`` (see
:mod:`lioncub.kernels.layout`), whole blocks, so that collectives can cut it anywhere between blocks. To add a codec,
subclass :class:`Codec` in a file of its own; every collective, the statistics and the planner then work with it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from lioncub import kernels
from lioncub.kernels import Cut, Direction, Encoded, UpdateVector
from lioncub.kernels.layout import BLOCK, Ballot, Layout


class Codec(ABC):
    """Encodes update vectors, combines what several workers encoded, decodes the direction.

    Subclasses are frozen dataclasses: codecs are compared, hashed, and their ``repr`` is part of what workers agree on.
    """

    sum_dtype: torch.dtype | None = None
    """The type in which payloads combine by addition, as in a backend's allreduce; None: they need combine()."""

    @property
    @abstractmethod
    def up_block_bytes(self) -> int:
        """Bytes that a worker sends for a block of 64 elements."""

    @abstractmethod
    def down_block_bytes(self, num_voters: int) -> int:
        """Bytes of the combined payload for a block of 64 elements."""

    def check(self, num_voters: int) -> None:  # noqa: B027  (most codecs fit any number)
        """Raise :class:`lioncub.errors.ConfigError` when that many voters cannot be combined without overflow."""

    def summand(self, num_voters: int) -> Codec | None:
        """The variant of this codec whose payloads add up without overflow, or None where there is none."""
        return None

    @abstractmethod
    def encode(self, u: Tensor, layout: Layout, step: int) -> Tensor:
        """``u [padded_numel]`` to a payload. ``u`` is zero wherever this worker abstains, and in the padding."""

    def encode_update(self, u: UpdateVector, step: int) -> Encoded:
        """The payload of an update vector that is not computed yet, and with a kernel of the codec never is."""
        values, finite = kernels.encode_values(u, u.dtype)
        return Encoded(self.encode(values.view(u.dtype).view(-1), u.layout, step), finite)

    @abstractmethod
    def combine(self, payloads: Tensor, ballot: Ballot) -> Tensor:
        """``[workers, blocks, up]`` to ``[blocks, down]``, counting only the voters of the ballot."""

    @abstractmethod
    def decode(self, combined: Tensor, ballot: Ballot) -> Tensor:
        """The direction ``[blocks · 64]``, float32, the same bits on every worker."""

    def direction(self, combined: Tensor, ballot: Ballot) -> Direction:
        """The direction in a form that kernels can apply: as it is on the wire, where they know that form."""
        values = self.decode(combined, ballot).to(torch.float32).view(torch.uint8)
        return Direction("values", values.view(len(combined), -1))

    @abstractmethod
    def votes(self, payload: Tensor) -> Tensor:
        """The sign of each element of this worker's payload: -1, 0 or 1, ``[blocks · 64]``."""

    def count_matches(self, payload: Tensor, combined: Tensor, ballot: Ballot, cuts: Sequence[Cut]) -> int:
        """On how many elements of the cuts this worker's payload points where the outcome points.

        The payload comes as it was sent, ``[shards, blocks, bytes]``.
        """
        same = self.votes(payload.reshape(-1, payload.shape[-1])) == torch.sign(self.decode(combined, ballot))
        return sum(int(same[start:stop].sum()) for start, stop, _ in cuts)


def decoded(direction: Direction, ballot: Ballot) -> Tensor:
    """All elements of a direction, float32."""
    values = torch.empty(len(direction.payload) * BLOCK, device=direction.payload.device)
    for span in ballot.spans:
        part = slice(span.start, span.stop)
        values[part] = kernels.direction_values(direction, span.start, span.stop, len(span.voters))
    return values
