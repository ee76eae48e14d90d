"""The operands of the kernels: parts of an update vector, directions, and the tensors to move.

All tensors may have any memory order; elements count in logical order. A float64 parameter is computed in float64,
everything else in float32. Every product and every sum is rounded once: no fused multiply-add anywhere, for its
rounding differs between vector body and tail, and between processors, and replicas must stay bit-identical.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from lioncub.kernels.layout import Layout


class Part(NamedTuple):
    """A tensor's part of an update vector: u = beta·m + gain·g; m itself without g; zero without m.

    Encoding it also writes next_m = next_beta·m + next_gain·g, contiguous and of m's precision, where that is given.
    """

    m: Tensor | None = None
    g: Tensor | None = None
    beta: float = 1.0
    gain: float = 0.0
    next_m: Tensor | None = None
    next_beta: float = 1.0
    next_gain: float = 0.0


@dataclass(frozen=True, eq=False)
class UpdateVector:
    """A bucket's update vector, not computed yet: parts back to back as in ``layout``, zero in the padding."""

    parts: Sequence[Part]
    layout: Layout
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, u: Tensor, layout: Layout) -> UpdateVector:
        """An update vector that is there already, ``u [padded_numel]``."""
        cuts = zip(layout.starts, layout.lengths, strict=True)
        return cls([Part(u[start : start + length]) for start, length in cuts], layout, u.dtype, u.device)

    def silent(self) -> UpdateVector:
        """Zero everywhere: what a worker that abstains encodes."""
        return UpdateVector([Part()] * len(self.parts), self.layout, self.dtype, self.device)


class Encoded(NamedTuple):
    """A payload ``uint8 [blocks, bytes]``, and whether all of the update vector is finite; if not, it is junk."""

    payload: Tensor
    finite: bool


class Quantiser(NamedTuple):
    """Lion Cub's levels; see :class:`lioncub.Levels`."""

    grid: Literal["midrise", "log", "midtread"]
    bits: int
    scale: Literal["l1", "linf"]
    log2_base: int = 1
    below: int = 0
    """Levels of the logarithmic grid, the lowest aside, that are below the mean."""

    @property
    def shift(self) -> int:
        """The level of the mean on the logarithmic grid; with L∞, the top level is that of the largest magnitude."""
        return 1 + self.below if self.scale == "l1" else (1 << (self.bits - 1)) - 1


class Tally(NamedTuple):
    """The rule by which sign-magnitude payloads are added up.

    An element is ±magnitudes[index]; its first plane is the sign, the others are the index. A zero sum goes to the
    casting voter where ``casting``. ``ternary``: a second plane of the outcome says where it is not zero.
    """

    magnitudes: tuple[int, ...]
    casting: bool
    ternary: bool

    @property
    def index_bits(self) -> int:
        return (len(self.magnitudes) - 1).bit_length()

    def sum_bits(self, num_voters: int) -> int:
        """Bits of a sum of that many elements, in two's complement."""
        return (num_voters * self.magnitudes[-1]).bit_length() + 1


class Direction(NamedTuple):
    """The direction of the step, as it came back from the exchange, ``[blocks, bytes]``.

    "signs": a plane of signs, and perhaps a second: where it moves. "counts": planes of the number of + votes.
    "sign-of": the sign of numbers of ``dtype``. "values": float32 numbers as they are.
    """

    kind: Literal["signs", "counts", "sign-of", "values"]
    payload: Tensor
    dtype: torch.dtype = torch.float32

    @property
    def num_planes(self) -> int:
        return self.payload.shape[1] // 8


class Noise(NamedTuple):
    """The key of stochastic rounding for one tensor at one step: 64 bits, as two words."""

    low: int
    high: int


class Move(NamedTuple):
    """x ← decay·x - lr·direction, where the direction's elements begin at ``start``; then m ← beta·m + gain·g.

    Without m and g only x moves. ``noise``: a bfloat16 x is rounded stochastically.
    """

    x: Tensor
    start: int
    lr: float
    decay: float
    num_voters: int
    m: Tensor | None = None
    g: Tensor | None = None
    beta: float = 1.0
    gain: float = 0.0
    noise: Noise | None = None


class Stride(NamedTuple):
    """One tensor's step of plain Lion.

    u = beta1·m + gain1·g;  x ← decay·x - lr·sign(u);  m ← beta2·m + gain2·g.  Elements whose u is not finite stay.
    """

    x: Tensor
    m: Tensor
    g: Tensor
    lr: float
    decay: float
    beta1: float
    gain1: float
    beta2: float
    gain2: float
    noise: Noise | None = None

    def in_memory_order(self) -> Stride:
        """Flat tensors where all lie in the same order in memory: no copy is needed, for an element need not know its
        place. Itself where they do not, or where noise depends on the place."""
        tensors = (self.x, self.m, self.g)
        if self.noise is not None or not _in_same_order(tensors):
            return self
        x, m, g = (tensor.detach().as_strided((tensor.numel(),), (1,)) for tensor in tensors)
        return self._replace(x=x, m=m, g=g)


def _in_same_order(tensors: Sequence[Tensor]) -> bool:
    """Whether all fill their memory without gaps, with their elements in one order."""
    first = tensors[0]
    for dims, order in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        if first.dim() == dims and all(tensor.is_contiguous(memory_format=order) for tensor in tensors):
            return True
    expected = 1
    for step, size in sorted(zip(first.stride(), first.shape, strict=True)):
        if size != 1 and step != expected:
            return False
        expected *= size
    return all(tensor.stride() == first.stride() for tensor in tensors[1:])


class Cut(NamedTuple):
    """Elements ``start`` to ``stop`` of a payload, which so many workers voted on."""

    start: int
    stop: int
    num_voters: int
