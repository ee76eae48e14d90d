"""AdamW on the mean gradient: Loshchilov and Hutter, arXiv 1711.05101."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lioncub.tools.study.baselines.exchange import AdamW, FullPrecision


class GlobalAdamW(FullPrecision):
    """m ← β1·m + (1-β1)·g,  v ← β2·v + (1-β2)·g²,  x ← (1 - lr·wd)·x - lr·m̂ / (√v̂ + ε): 32 bits up, 32 down.

    With ``precision="bfloat16"`` 16 and 16: as data parallel training that compresses its gradients to bfloat16.
    """

    def __init__(
        self, *arguments: Any, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self.adamw = AdamW(self.numel, betas, eps)

    def rule(self, g: Tensor) -> Tensor:
        return self.adamw(g)
