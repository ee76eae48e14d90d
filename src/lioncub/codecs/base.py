"""What a codec is: what is sent, how payloads are combined, how many bits.

A codec never sees a process group. A payload is ``uint8 [blocks, bytes]`` (see :mod:`lioncub.layout`), whole blocks,
so that collectives can cut it anywhere between blocks. To add a codec, subclass :class:`Codec` in a file of its own;
every collective, the statistics and the planner then work with it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from lioncub.kernels import pack_bits, unpack_bits
from lioncub.layout import BLOCK, Ballot, Layout


class Codec(ABC):
    """Encodes update vectors, combines what several workers encoded, decodes the direction.

    Subclasses are frozen dataclasses: codecs are compared, hashed, and their ``repr`` is part of what workers agree on.
    """

    sum_dtype: torch.dtype | None = None
    """Set when payloads combine by plain addition of elements of this type: then a native allreduce can do it."""

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

    @abstractmethod
    def combine(self, payloads: Tensor, ballot: Ballot) -> Tensor:
        """``[workers, blocks, up]`` to ``[blocks, down]``, counting only the voters of the ballot."""

    @abstractmethod
    def decode(self, combined: Tensor, ballot: Ballot) -> Tensor:
        """The direction ``[blocks · 64]``, float32, the same bits on every worker."""

    @abstractmethod
    def votes(self, payload: Tensor) -> Tensor:
        """Where each element of this worker's payload points: -1, 0 or 1, ``[blocks · 64]``."""

    def matches(self, payload: Tensor, combined: Tensor, ballot: Ballot) -> Tensor:
        """A packed bit per element: did this worker's payload point where the outcome points?"""
        return pack_bits(self.votes(payload) == torch.sign(self.decode(combined, ballot)))


def planes(payload: Tensor) -> list[Tensor]:
    """The bit planes of a payload, unpacked: plane k of a block is its k-th group of 8 bytes."""
    return [unpack_bits(plane) for plane in packed_planes(payload)]


def packed_planes(payload: Tensor) -> tuple[Tensor, ...]:
    """The bit planes of a payload as they are, ``[blocks, 8]`` each."""
    return payload.view(len(payload), -1, BLOCK // 8).unbind(1)


def from_planes(bits: list[Tensor]) -> Tensor:
    """Pack bit planes ``[blocks · 64]`` into a payload ``[blocks, 8 · planes]``."""
    return torch.stack([pack_bits(plane).view(-1, BLOCK // 8) for plane in bits], dim=1).flatten(1)
