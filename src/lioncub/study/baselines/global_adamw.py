"""AdamW on the mean gradient: Loshchilov and Hutter, arXiv 1711.05101."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lioncub.study.baselines.exchange import FullPrecision


class GlobalAdamW(FullPrecision):
    """m ← β1·m + (1-β1)·g,  v ← β2·v + (1-β2)·g²,  x ← (1 - lr·wd)·x - lr·m̂ / (√v̂ + ε): 32 bits up, 32 down."""

    def __init__(
        self,
        params: Sequence[Tensor],
        workers: int,
        *,
        weight_decay: float,
        seed: int = 0,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        super().__init__(params, workers, weight_decay=weight_decay, seed=seed)
        self.betas = betas
        self.eps = eps
        self.m = torch.zeros(self.numel)
        self.v = torch.zeros(self.numel)

    def rule(self, g: Tensor) -> Tensor:
        beta1, beta2 = self.betas
        t = self.steps + 1
        self.m.mul_(beta1).add_(g, alpha=1 - beta1)
        self.v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        m_hat = self.m / (1 - beta1**t)
        v_hat = self.v / (1 - beta2**t)
        return m_hat / (v_hat.sqrt_() + self.eps)
