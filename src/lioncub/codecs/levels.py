"""Lion Cub's p-bit quantisation of the update vector, on four grids."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from lioncub import kernels
from lioncub.codecs.base import Codec
from lioncub.codecs.sign_magnitude import SignMagnitude
from lioncub.errors import ConfigError
from lioncub.kernels import Encoded, Quantiser, UpdateVector
from lioncub.kernels.layout import BLOCK, Ballot, Layout
from lioncub.kernels.torch_ops import units

Scale = Literal["l1", "linf"]
Grid = Literal["midrise", "log", "float", "midtread"]


class Powers(NamedTuple):
    """Levels that are powers of a base."""

    log2_base: int
    below: int = 0
    """The number of levels, the lowest aside, for magnitudes below the mean."""


POWERS: dict[str, dict[int, Powers]] = {
    "log": {2: Powers(3), 3: Powers(2), 4: Powers(1), 5: Powers(1)},
    "float": {2: Powers(2), 3: Powers(2, below=1), 4: Powers(1, below=3), 5: Powers(1, below=6)},
}
"""The powers of each grid and number of bits."""


@dataclass(frozen=True)
class Levels(SignMagnitude):
    """p bits of the update vector, scaled per tensor by the worker's own mean|u| (L1) or max|u| (L∞).

    midrise:   q = sign(u)·(2·min(⌊|u|/mean|u| · L/2⌋, L-1) + 1), L = 2^(p-1)             p bits up, 1 down
    log:       q = sign(u)·b^e, e = clip(⌊log_b(|u|/mean|u|)⌋ + 1, 0, L-1), p = 2..5      p bits up, 1 down
    float:     the same with e = clip(⌊log_b(|u|/mean|u|)⌋ + 1 + k, 0, L-1)               p bits up, 1 down
    midtread:  q = clip(round(u/mean|u| · s/2), -s, s), s = 2^(p-1)-1: the paper's        p bits up, 2 down

    On the logarithmic grid b = 8, 4, 2, 2 for 2 to 5 bits, and all magnitudes below the mean have the same level.
    The float grid, which is lioncub's, resolves them: b = 4, 4, 2, 2 and k = 0, 1, 3, 6 more levels lie below the mean.
    """

    bits: int
    scale: Scale = "l1"
    grid: Grid = "midrise"

    def __post_init__(self) -> None:
        if self.scale not in ("l1", "linf"):
            raise ConfigError(f'Levels(scale={self.scale!r}): choose "l1" or "linf"')
        if self.grid not in ("midrise", "log", "float", "midtread"):
            raise ConfigError(f'Levels(grid={self.grid!r}): choose "midrise", "log", "float" or "midtread"')
        if self.grid == "float" and self.scale != "l1":
            raise ConfigError('Levels(grid="float") lies around the mean: choose scale="l1", or grid="log"')
        most = 5 if self.grid in POWERS else 8
        if not isinstance(self.bits, int) or not 2 <= self.bits <= most:
            raise ConfigError(
                f"Levels(bits={self.bits!r}, grid={self.grid!r}): bits must be 2 to {most} (one bit is Vote())"
            )

    @property
    def num_levels(self) -> int:
        return 1 << (self.bits - 1)

    @cached_property
    def magnitudes(self) -> tuple[int, ...]:
        if self.grid == "midtread":
            return tuple(range(self.num_levels))
        if self.grid == "midrise":
            return tuple(2 * k + 1 for k in range(self.num_levels))
        return tuple(2 ** (POWERS[self.grid][self.bits].log2_base * e) for e in range(self.num_levels))

    @property
    def casting(self) -> bool:
        return not self.ternary

    @property
    def ternary(self) -> bool:
        return self.grid == "midtread"

    def check(self, num_voters: int) -> None:
        most = (2**31 - 1) // self.magnitudes[-1]
        if num_voters > most:
            raise ConfigError(
                f"{self} sums up to {self.magnitudes[-1]} for each of {num_voters} voters, which does not fit the "
                f"32-bit sum: at most {most} voters; use fewer bits"
            )

    def summand(self, num_voters: int) -> Codec | None:
        return LevelSums(self.bits, self.scale, num_voters) if self.grid == "midtread" else None

    @property
    def quantiser(self) -> Quantiser:
        if self.grid == "midrise" or self.grid == "midtread":
            return Quantiser(self.grid, self.bits, self.scale)
        return Quantiser("log", self.bits, self.scale, *POWERS[self.grid][self.bits])

    def encode(self, u: Tensor, layout: Layout, step: int) -> Tensor:
        return self.encode_update(UpdateVector.of(u, layout), step).payload

    def encode_update(self, u: UpdateVector, step: int) -> Encoded:
        return kernels.encode_levels(u, step, self.quantiser)


@dataclass(frozen=True)
class LevelSums(Codec):
    """The paper's p-bit allreduce: levels that add up inside p bits, ⌊8/p⌋ to a byte.

    Mid-tread with s = ⌊(2^(p-1)-1)/n⌋, sent as q + s: the sum of n of them is at most 2ns ≤ 2^p - 2, so no carry
    crosses into the neighbour. A worker that abstains has u = 0 and adds the neutral s.
    """

    bits: int
    scale: Scale
    num_voters: int
    sum_dtype = torch.uint8

    def __post_init__(self) -> None:
        if self.max_level < 1:
            room = (1 << (self.bits - 1)) - 1
            raise ConfigError(
                f'collective "sum" with {self.bits} bits: {self.num_voters} workers share levels up to {room}, which '
                f"leaves each worker none: at most {room} workers; use more bits, or the two-phase collective"
            )

    @property
    def max_level(self) -> int:
        return ((1 << (self.bits - 1)) - 1) // self.num_voters

    @property
    def per_byte(self) -> int:
        return 8 // self.bits

    @property
    def up_block_bytes(self) -> int:
        return BLOCK // self.per_byte

    def down_block_bytes(self, num_voters: int) -> int:
        return self.up_block_bytes

    def encode(self, u: Tensor, layout: Layout, step: int) -> Tensor:
        scales = units(UpdateVector.of(u, layout), self.scale)
        r = torch.zeros_like(u)
        for start, length, scale in zip(layout.starts, layout.lengths, scales, strict=True):
            torch.div(u[start : start + length].abs(), scale, out=r[start : start + length])
        factor = self.max_level * (0.5 if self.scale == "l1" else 1.0)
        level = r.masked_fill_(u == 0, 0.0).mul_(factor).round_().clamp_(max=self.max_level)
        offset = level.mul_(torch.sign(u)).add_(self.max_level).to(torch.uint8).view(-1, self.per_byte)
        packed = torch.zeros(len(offset), dtype=torch.uint8, device=u.device)
        for k in range(self.per_byte):
            packed |= offset[:, k] << (k * self.bits)
        return packed.view(layout.blocks, -1)

    def combine(self, payloads: Tensor, ballot: Ballot) -> Tensor:
        return payloads.sum(0, dtype=torch.uint8)

    def _fields(self, packed: Tensor) -> Tensor:
        mask = 2**self.bits - 1
        fields = [(packed.reshape(-1) >> (k * self.bits)) & mask for k in range(self.per_byte)]
        return torch.stack(fields, dim=1).view(-1).to(torch.int32)

    def decode(self, combined: Tensor, ballot: Ballot) -> Tensor:
        total = self._fields(combined) - self.num_voters * self.max_level
        return torch.sign(total).to(torch.float32)

    def votes(self, payload: Tensor) -> Tensor:
        return torch.sign(self._fields(payload) - self.max_level)
