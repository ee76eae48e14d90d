"""Lion's update as functions on tensors. Nothing here knows that other workers exist.

    u = β1·m + (1-β1)·g          x ← (1 - lr·wd)·x - lr·direction          m ← β2·m + (1-β2)·g

Every product and every sum is rounded once: no fused multiply-add, no ``alpha=``, no ``lerp``. Their rounding
differs between vector body and tail, and between processors, and replicas must stay bit-identical.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lioncub.kernels import in_cache


def compute_dtype(x: Tensor) -> torch.dtype:
    """The precision of momentum, update vector and arithmetic for a parameter."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def update_vector(m: Tensor, g: Tensor, beta1: float, *, out: Tensor) -> Tensor:
    """``u = β1·m + (1-β1)·g``, written to ``out``."""
    for m_part, g_part, u_part in in_cache(m, g, out):
        torch.mul(m_part, beta1, out=u_part).add_(g_part.to(m.dtype) * (1 - beta1))
    return out


def advance_(m: Tensor, g: Tensor, beta2: float) -> Tensor:
    """``m ← β2·m + (1-β2)·g`` with the worker's own gradient."""
    for m_part, g_part in in_cache(m, g):
        m_part.mul_(beta2).add_(g_part.to(m.dtype) * (1 - beta2))
    return m


def apply_(x: Tensor, direction: Tensor, lr: float, weight_decay: float) -> Tensor:
    """``x ← (1 - lr·wd)·x - lr·direction``, computed in ``compute_dtype`` and rounded once into ``x``."""
    for x_part, d_part in in_cache(x, direction):
        wide = x_part.to(compute_dtype(x))  # the very same tensor where x is float32 or float64
        wide.mul_(1 - lr * weight_decay).sub_(d_part.to(wide.dtype) * lr)
        if wide is not x_part:
            x_part.copy_(wide)
    return x
