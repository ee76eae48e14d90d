"""Plain Lion: one worker, one pass over memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from lioncub import kernels, rule
from lioncub.errors import SparseGradientError
from lioncub.kernels import Stride
from lioncub.momentum.memory import Memory
from lioncub.step.state import MomentumOptimizer
from lioncub.step.validation import Rounding


class Lion(MomentumOptimizer):
    """Lion (arXiv 2302.06675) that reads gradient, momentum and parameter once and writes the last two.

        u = β1·m + (1-β1)·g          x ← (1 - lr·wd)·x - lr·sign(u)          m ← β2·m + (1-β2)·g

    It is what :class:`DistributedLion` is on a single worker, without buckets, in one pass. An element whose update is
    not finite keeps its value and its momentum; ``num_skipped`` counts them.

    Args:
        params: tensors, ``model.named_parameters()``, or groups, as every torch optimizer.
        lr: about a third of AdamW's.
        betas: β1 of the update vector, β2 of the momentum.
        memory, warmup: as :class:`DistributedLion`'s. ``memory="constant"`` is the paper's Lion.
        weight_decay: decoupled; about three times AdamW's.
        maximize: ascend.
        momentum_dtype: bfloat16 halves the state's memory.
        stochastic_rounding: round bfloat16 parameters up or down at random, by distance, so that updates smaller than
            half a step of bfloat16 are not lost. The numbers follow from ``rounding_seed``.
            Parameters of other types, float16 too, are rounded to nearest all the same.

    Example::

        optimizer = Lion(model.parameters(), lr=1e-4, weight_decay=0.1)
        loss.backward()
        optimizer.step()
    """

    momentum_format = torch.preserve_format

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        memory: Memory = "growing",
        warmup: int | None = None,
        maximize: bool = False,
        momentum_dtype: torch.dtype = torch.float32,
        stochastic_rounding: bool = False,
        rounding_seed: int = 0,
    ) -> None:
        self._rounding = Rounding(stochastic_rounding, rounding_seed)
        self.num_skipped = 0
        """Elements that the last step left alone because their update was not finite."""
        defaults = {
            "lr": lr,
            "betas": betas,
            "memory": memory,
            "warmup": warmup,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "step": 0,
            "since": 0,
        }
        super().__init__(params, defaults, momentum_dtype)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_rounding": self._rounding, "num_skipped": self.num_skipped}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's, but momenta keep their precision. States of :class:`DistributedLion` and other Lions fit."""
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            group.pop("codec", None)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of every parameter that has a gradient. Returns the closure's loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        strides = self._strides()
        self.num_skipped = sum(kernels.lion_(alike) for alike in strides.values())
        for group in self.param_groups:
            group["step"] += 1
        return loss

    def _strides(self) -> dict[tuple[torch.device, torch.dtype], list[Stride]]:
        """What to do with every parameter that has a gradient, those together that one kernel call can take."""
        strides: dict[tuple[torch.device, torch.dtype], list[Stride]] = {}
        rounding = self._rounding if self._rounding.stochastic else None
        number = -1
        for group in self.param_groups:
            coefficients, step = rule.coefficients(group), group["step"]
            for param in group["params"]:
                number += 1
                g = param.grad
                if g is None:
                    continue
                if g.layout != torch.strided:
                    raise SparseGradientError(
                        f"a sparse gradient for parameter {number}: use dense gradients (nn.Embedding(sparse=False))"
                    )
                noise = rounding.noise(param, number, step) if rounding else None
                stride = Stride(param, self.state[param]["exp_avg"], g, *coefficients, noise)
                strides.setdefault((param.device, param.dtype), []).append(stride)
        return strides
