"""Lion's update as functions on tensors. Nothing here knows that other workers exist.

    u = β1·m + (1-β1)·g          x ← (1 - lr·wd)·x - lr·direction          m ← β2·m + (1-β2)·g

Every product and every sum is rounded once: no fused multiply-add, no ``alpha=``, no ``lerp``. Their rounding
differs between vector body and tail, and between processors, and replicas must stay bit-identical.
"""

from __future__ import annotations

import torch
from torch import Tensor


def compute_dtype(x: Tensor) -> torch.dtype:
    """The precision of momentum, update vector and arithmetic for a parameter."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def blend_(m: Tensor, g: Tensor, beta: float) -> Tensor:
    """``m ← β·m + (1-β)·g`` in the precision of ``m``."""
    return m.mul_(beta).add_(g.to(m.dtype) * (1 - beta))


def update_vector(m: Tensor, g: Tensor, beta1: float, *, out: Tensor) -> Tensor:
    """``u = β1·m + (1-β1)·g``, written to ``out``."""
    return blend_(out.copy_(m), g, beta1)


def advance_(m: Tensor, g: Tensor, beta2: float) -> Tensor:
    """``m ← β2·m + (1-β2)·g`` with the worker's own gradient."""
    return blend_(m, g, beta2)


def apply_(x: Tensor, direction: Tensor, lr: float, weight_decay: float) -> Tensor:
    """``x ← (1 - lr·wd)·x - lr·direction``, computed in ``compute_dtype`` and rounded once into ``x``."""
    wide = x.to(compute_dtype(x))  # x itself where it is float32 or float64
    wide.mul_(1 - lr * weight_decay).sub_(direction.to(wide.dtype) * lr)
    return x if wide is x else x.copy_(wide)
