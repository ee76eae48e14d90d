"""Lion on the mean gradient: Chen et al., arXiv 2302.06675; G-Lion in Distributed Lion's tables."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lioncub.study.baselines.exchange import FullPrecision


class GlobalLion(FullPrecision):
    """u = β1·m + (1-β1)·g,  x ← (1 - lr·wd)·x - lr·sign(u),  m ← β2·m + (1-β2)·g: 32 bits up, 32 down."""

    def __init__(
        self,
        params: Sequence[Tensor],
        workers: int,
        *,
        weight_decay: float,
        seed: int = 0,
        betas: tuple[float, float] = (0.9, 0.99),
    ) -> None:
        super().__init__(params, workers, weight_decay=weight_decay, seed=seed)
        self.betas = betas
        self.m = torch.zeros(self.numel)

    def rule(self, g: Tensor) -> Tensor:
        beta1, beta2 = self.betas
        u = self.m * beta1 + g * (1 - beta1)
        self.m = self.m * beta2 + g * (1 - beta2)
        return u.sign_()
