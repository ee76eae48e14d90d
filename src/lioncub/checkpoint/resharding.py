"""From any number of workers to any other, so that nothing that the workers learned together is lost."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

Shares: TypeAlias = list[tuple[int, float]]
"""Old workers, and the weight of each."""


def shares(num_old: int, num_new: int, new: int) -> Shares:
    """Which old workers a new one inherits from, and how much: weights that add up to 1.

    Lay all workers side by side on the unit interval, the old ones as W pieces, the new ones as W'. New worker j covers
    [j/W', (j+1)/W') and inherits from the old workers by their overlap times W'. In units of 1/(W·W'):
    """
    start, stop = new * num_old, (new + 1) * num_old
    first, last = start // num_new, -(-stop // num_new)
    overlaps = [(old, min(stop, (old + 1) * num_new) - max(start, old * num_new)) for old in range(first, last)]
    return [(old, overlap / num_old) for old, overlap in overlaps]


def heir(inherited: Shares) -> int:
    """The old worker with the largest share: for what cannot be averaged."""
    return max(inherited, key=lambda share: (share[1], -share[0]))[0]


class Blend:
    """A weighted mean of some tensors, in float64: m₁ + Σ wᵢ·(mᵢ - m₁), which is exact where all are the same."""

    def __init__(self, first: Tensor) -> None:
        self._first = first
        self._rest: Tensor | None = None

    def add(self, tensor: Tensor, weight: float) -> None:
        difference = tensor.to(torch.float64) - self._first.to(torch.float64)
        self._rest = difference.mul_(weight) if self._rest is None else self._rest.add_(difference, alpha=weight)

    def result(self) -> Tensor:
        if self._rest is None:
            return self._first
        blended = (self._rest + self._first).to(self._first.dtype)
        return torch.where(self._rest == 0, self._first, blended)  # -0.0 + 0.0 is +0.0
