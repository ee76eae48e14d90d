"""Lion Cub's selective momentum synchronisation: which momenta are averaged, at which steps, in which precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from lioncub.codecs import Dense
from lioncub.errors import ConfigError

Match: TypeAlias = "str | Sequence[str] | Callable[[str, Tensor], bool] | None"

SAMPLE = 64
"""Elements of each tensor by which divergence is measured."""


@dataclass(frozen=True)
class MomentumSync:
    """Average momenta over the workers, every tensor that is selected once in ``every`` steps.

    ``match``: glob patterns on parameter names (one or several), a callable ``(name, parameter) -> bool``; None: all.
    ``dtype``: bfloat16 or float32, on the wire.
    ``spread``: a 1/every part of the selected elements each step, so that no step carries a burst; False: all of them
    at the last step of every period.
    ``budget``: bits per parameter per step (up and down together, over all parameters). In each period the divergence
    between workers is measured on a sample of every matching tensor (64 elements, at a step of its own), and the most
    divergent tensors that fit are chosen for the next. None: no limit, all matching tensors.
    """

    every: int = 64
    match: Match = None
    dtype: torch.dtype = torch.bfloat16
    spread: bool = True
    budget: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.every, int) or self.every < 1:
            raise ConfigError(f"MomentumSync(every={self.every!r}): the period is a whole number of steps, 1 or more")
        if self.dtype not in (torch.bfloat16, torch.float32):
            raise ConfigError(f"MomentumSync(dtype={self.dtype}): choose torch.bfloat16 or torch.float32")
        if self.budget is not None and not self.budget > 0:
            raise ConfigError(f"MomentumSync(budget={self.budget!r}): bits per parameter per step, more than 0")

    @property
    def codec(self) -> Dense:
        return Dense(self.dtype)

    @property
    def bits_per_element(self) -> float:
        """Bits up and down per step for an element that is selected."""
        return 2 * 8 * self.dtype.itemsize / self.every

    def matching(self, named: Sequence[tuple[str, Tensor]]) -> list[bool]:
        """Which parameters may be selected. Patterns that match nothing are a mistake."""
        if self.match is None:
            return [True] * len(named)
        if callable(self.match):
            chosen = [bool(self.match(name, param)) for name, param in named]
            if named and not any(chosen):
                raise ConfigError("MomentumSync(match=…): the callable matches no parameter")
            return chosen
        patterns = [self.match] if isinstance(self.match, str) else list(self.match)
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name, _ in named):
                raise ConfigError(
                    f"MomentumSync(match=…): {pattern!r} matches no parameter; pass model.named_parameters() to the "
                    f"optimizer and use its names, such as {named[0][0]!r}"
                )
        return [any(fnmatchcase(name, pattern) for pattern in patterns) for name, _ in named]

    def window(self, step: int, numel: int) -> tuple[int, int]:
        """The elements, of all selected ones laid end to end, that are averaged at ``step``."""
        turn = step % self.every
        if not self.spread:
            return (0, numel) if turn == self.every - 1 else (0, 0)
        return numel * turn // self.every, numel * (turn + 1) // self.every

    def pieces(self, step: int, sizes: Sequence[int]) -> list[tuple[int, int, int]]:
        """The window as pieces of tensors of such sizes: (number of the tensor, first element, one after the last)."""
        start, stop = self.window(step, sum(sizes))
        found, offset = [], 0
        for index, size in enumerate(sizes):
            first, last = max(start - offset, 0), min(stop - offset, size)
            if first < last:
                found.append((index, first, last))
            offset += size
        return found

    def chooses_at(self, step: int) -> bool:
        """Whether tensors are chosen at the end of ``step``, for the period after it."""
        return self.budget is not None and step % self.every == self.every - 1

    def choose(self, divergences: Sequence[float], sizes: Sequence[int], num_parameters: int) -> list[bool]:
        """The most divergent tensors within the budget."""
        assert self.budget is not None, "without a budget there is nothing to choose"
        room = self.budget * num_parameters / self.bits_per_element
        chosen = [False] * len(sizes)
        for index in sorted(range(len(sizes)), key=lambda i: (-divergences[i], i)):
            if divergences[index] > 0 and sizes[index] <= room:
                chosen[index] = True
                room -= sizes[index]
        return chosen


def sample(momentum: Tensor) -> Tensor:
    """At most :data:`SAMPLE` evenly spaced elements, float32."""
    flat = momentum.view(-1)
    return flat[:: max(flat.numel() // SAMPLE, 1)][:SAMPLE].float()


def divergence(rows: np.ndarray) -> float:
    """The divergence of momenta ``[workers, elements]``: 1 - |mean|² / mean|·|², 0 when equal, 1 - 1/n when unrelated.

    Summed exactly (``math.fsum``): every worker must get the same number from the same bytes, on any processor.
    """
    wide = rows.astype(np.float64)
    squares = math.fsum((wide * wide).reshape(-1).tolist()) / len(rows)
    columns = [math.fsum(column) / len(rows) for column in wide.T.tolist()]
    relative = 1 - math.fsum(c * c for c in columns) / squares if squares > 0 else 0.0
    return relative if relative > 1e-9 else 0.0  # below, it is rounding
