"""Sign momentum with local steps: Yu et al., arXiv 2411.17866."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lioncub.tools.study.baselines.local_steps import LocalAverages


class SignMomentum(LocalAverages):
    """H steps of AdamW on every worker; then a step of Lion's kind on the mean of what they moved by.

        d = (1/n) Σ (x - y_i) / γ,   c = β1·m + (1-β1)·d,   m ← β2·m + (1-β2)·d
        x ← x - η·γ·(sign(c) + λ·x),   y_i ← x

    γ is the learning rate now, η = ``outer_lr``, the betas of the signs ``outer_betas``, λ the weight decay of the
    run, as in the inner steps. 32/H bits up and 32/H down.
    """

    def __init__(
        self,
        *arguments: Any,
        every: int = 12,
        outer_lr: float = 1.0,
        outer_betas: tuple[float, float] = (0.95, 0.98),
        **options: Any,
    ) -> None:
        super().__init__(*arguments, every=every, **options)
        self.outer_lr = outer_lr
        self.outer_betas = outer_betas
        self.m = torch.zeros(self.numel)

    def outer(self, d: Tensor) -> Tensor:
        if self.lr == 0:
            return torch.zeros(self.numel)  # nobody moved, and d would be 0 / 0
        beta1, beta2 = self.outer_betas
        d = d / self.lr
        c = self.m * beta1 + d * (1 - beta1)
        self.m.mul_(beta2).add_(d, alpha=1 - beta2)
        x = self.flat(self.params)
        return c.sign_().add_(x, alpha=self.weight_decay).mul_(self.outer_lr * self.lr)
