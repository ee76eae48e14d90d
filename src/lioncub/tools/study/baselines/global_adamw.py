"""AdamW on the mean gradient: Loshchilov and Hutter, arXiv 1711.05101."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from lioncub.tools.study.baselines.exchange import AdamW, FullPrecision
from lioncub.tools.study.baselines.formats import Precision


class GlobalAdamW(FullPrecision):
    """m ← β1·m + (1-β1)·g,  v ← β2·v + (1-β2)·g²,  x ← (1 - lr·wd)·x - lr·m̂ / (√v̂ + ε): 32 bits up, 32 down.

    With ``precision="bfloat16"`` 16 and 16: as data parallel training that compresses its gradients to bfloat16.
    """

    def __init__(
        self,
        params: Sequence[Tensor],
        workers: int,
        *,
        weight_decay: float,
        seed: int = 0,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        precision: Precision = "float32",
    ) -> None:
        super().__init__(params, workers, weight_decay=weight_decay, seed=seed, precision=precision)
        self.adamw = AdamW(self.numel, betas, eps)

    def rule(self, g: Tensor) -> Tensor:
        return self.adamw(g)
