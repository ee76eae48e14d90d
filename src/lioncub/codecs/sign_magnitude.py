"""Codecs whose payload is an integer per element, as a sign bit and bits of magnitude: a vote with a weight."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from lioncub import kernels
from lioncub.codecs.base import Codec, decoded
from lioncub.kernels import Cut, Direction, Tally, UpdateVector
from lioncub.kernels.bits import from_planes, planes
from lioncub.kernels.layout import BLOCK, Ballot, Layout


class SignMagnitude(Codec):
    """Element q = ±magnitudes[index]; the outcome is the sign of Σ q over the voters.

    The first plane is the sign, the others the index. A zero sum goes to the casting voter where ``casting``, else it
    stays zero. Where an outcome can be zero (``ternary``), a second plane on the way back says so.
    """

    @property
    @abstractmethod
    def magnitudes(self) -> tuple[int, ...]:
        """The magnitude of each index, ascending; their number is a power of two."""

    @property
    @abstractmethod
    def casting(self) -> bool: ...

    @property
    @abstractmethod
    def ternary(self) -> bool: ...

    def indices(self, u: Tensor, layout: Layout) -> Tensor:
        """The magnitude's index of each element of ``u``, as uint8. Needed where :meth:`encode` is not overridden."""
        raise NotImplementedError(f"{type(self).__name__} needs indices() or an encode() of its own")

    @cached_property
    def tally(self) -> Tally:
        return Tally(self.magnitudes, self.casting, self.ternary)

    @property
    def up_block_bytes(self) -> int:
        return BLOCK // 8 * (1 + self.tally.index_bits)

    def down_block_bytes(self, num_voters: int) -> int:
        return BLOCK // 8 * (2 if self.ternary else 1)

    def encode(self, u: Tensor, layout: Layout, step: int) -> Tensor:
        (sign,) = planes(kernels.encode_signs(UpdateVector.of(u, layout), step, abstain=False).payload)
        index = self.indices(u, layout)
        return from_planes([sign, *((index >> k) & 1 for k in range(self.tally.index_bits))])

    def values(self, payload: Tensor) -> Tensor:
        """The integers of a payload, int32 ``[blocks · 64]``."""
        sign, *index_planes = planes(payload)
        value = sign.to(torch.int32).mul_(2).sub_(1)
        index = torch.zeros_like(value)
        for k, plane in enumerate(index_planes):
            index += plane.to(torch.int32) << k
        return value * torch.tensor(self.magnitudes, dtype=torch.int32, device=value.device)[index]

    def combine(self, payloads: Tensor, ballot: Ballot) -> Tensor:
        return kernels.majority(payloads, ballot, self.tally)

    def direction(self, combined: Tensor, ballot: Ballot) -> Direction:
        return Direction("signs", combined)

    def decode(self, combined: Tensor, ballot: Ballot) -> Tensor:
        return decoded(self.direction(combined, ballot), ballot)

    def votes(self, payload: Tensor) -> Tensor:
        return torch.sign(self.values(payload))

    def count_matches(self, payload: Tensor, combined: Tensor, ballot: Ballot, cuts: Sequence[Cut]) -> int:
        own_zeros = self.magnitudes[0] == 0
        return kernels.count_matches(payload, self.direction(combined, ballot), cuts, own_zeros=own_zeros)
