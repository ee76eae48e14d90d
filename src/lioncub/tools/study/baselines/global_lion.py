"""Lion on the mean gradient: Chen et al., arXiv 2302.06675; G-Lion in Distributed Lion's tables."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lioncub.momentum.memory import Memory, beta2_at, lr_at, share, usual_warmup
from lioncub.tools.study.baselines.exchange import FullPrecision


class GlobalLion(FullPrecision):
    """u = β1·m + (1-β1)·g,  x ← (1 - lr·wd)·x - lr·sign(u),  m ← β2·m + (1-β2)·g: 32 bits up, 32 down.

    ``memory`` and ``warmup`` as :class:`lioncub.Lion`'s; constant is the paper's.
    """

    def __init__(
        self,
        *arguments: Any,
        betas: tuple[float, float] = (0.9, 0.99),
        memory: Memory = "constant",
        warmup: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.betas = betas
        self.memory = share(memory)
        self.warmup = usual_warmup(betas[1], memory) if warmup is None else warmup
        self.m = torch.zeros(self.numel)

    def rule(self, g: Tensor) -> Tensor:
        beta1, beta2 = self.betas[0], beta2_at(self.steps, self.betas[1], self.memory)
        u = self.m * beta1 + g * (1 - beta1)
        self.m = self.m * beta2 + g * (1 - beta2)
        return u.sign_()

    def move(self, lr: float) -> int:
        return super().move(lr_at(self.steps, lr, self.warmup))
