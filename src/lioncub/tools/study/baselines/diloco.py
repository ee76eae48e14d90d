"""DiLoCo: Douillard et al., arXiv 2311.08105; with an outer rate of 1 and no momentum, plain averaging of weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lioncub.tools.study.baselines.local_steps import LocalAverages


class Nesterov:
    """The outer optimizer: m ← μ·m + d; the displacement is lr·(d + μ·m)."""

    def __init__(self, numel: int, lr: float, momentum: float) -> None:
        self.m = torch.zeros(numel)
        self.lr = lr
        self.momentum = momentum

    def __call__(self, d: Tensor) -> Tensor:
        self.m.mul_(self.momentum).add_(d)
        return (d + self.m * self.momentum).mul_(self.lr)


class DiLoCo(LocalAverages):
    """H steps of AdamW on every worker; then Nesterov's momentum on the mean of what they moved by.

        d = (1/n) Σ (x - y_i),   m ← μ·m + d,   x ← x - ``outer_lr``·(d + μ·m),   y_i ← x

    32/H bits up and 32/H down; with 4-bit floats both ways 4/H and 4/H, without error feedback. ``outer_lr=1`` and
    ``outer_momentum=0`` average the weights: local AdamW.
    """

    def __init__(self, *arguments: Any, outer_lr: float = 0.7, outer_momentum: float = 0.9, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.nesterov = Nesterov(self.numel, outer_lr, outer_momentum)

    def outer(self, d: Tensor) -> Tensor:
        return self.nesterov(d)
