"""What Lion does with a gradient and a direction. Nothing here knows that other workers exist.

    u = β1·m + (1-β1)·g          x ← (1 - lr·wd)·x - lr·direction          m ← β2·m + (1-β2)·g

β2 and lr are those of the group's step: see :mod:`lioncub.momentum.memory`.
The passes over memory are :mod:`lioncub.kernels`'; these functions give them their coefficients. ``maximize`` turns
the gradient's sign, which is exact, so no negated copy is made.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lioncub.kernels import Move, Noise, Part
from lioncub.kernels.dispatch import computed_in as computed_in
from lioncub.kernels.torch_ops import blend_
from lioncub.momentum.memory import betas_now, lr_now


def gain(beta: float, *, maximize: bool) -> float:
    """What the gradient is multiplied with: 1-β, with the sign to descend."""
    return -(1 - beta) if maximize else 1 - beta


def update(m: Tensor, g: Tensor, group: dict[str, Any], next_m: Tensor | None = None) -> Part:
    """u = β1·m + (1-β1)·g; and next_m = β2·m + (1-β2)·g, where there is room for it."""
    beta1, beta2 = betas_now(group)
    down = -1 if group["maximize"] else 1
    return Part(m, g, beta1, down * (1 - beta1), next_m, beta2, down * (1 - beta2))


def move(
    x: Tensor,
    m: Tensor,
    g: Tensor | None,
    group: dict[str, Any],
    *,
    start: int,
    num_voters: int,
    noise: Noise | None = None,
) -> Move:
    """x ← (1 - lr·wd)·x - lr·direction; with a gradient, m ← β2·m + (1-β2)·g."""
    lr = lr_now(group)
    decay = 1 - lr * group["weight_decay"]
    if g is None:
        return Move(x, start, lr, decay, num_voters, noise=noise)
    _, beta2 = betas_now(group)
    return Move(x, start, lr, decay, num_voters, m, g, beta2, gain(beta2, maximize=group["maximize"]), noise)


def coefficients(group: dict[str, Any]) -> tuple[float, float, float, float, float, float]:
    """Those of :class:`lioncub.kernels.Stride`: all of Lion in one pass."""
    lr, (beta1, beta2), maximize = lr_now(group), betas_now(group), group["maximize"]
    decay = 1 - lr * group["weight_decay"]
    return lr, decay, beta1, gain(beta1, maximize=maximize), beta2, gain(beta2, maximize=maximize)


def advanced(m: Tensor, g: Tensor, group: dict[str, Any]) -> Tensor:
    """β2·m + (1-β2)·g as a new tensor in the precision of computation, rounded as :func:`move` would."""
    _, beta2 = betas_now(group)
    return blend_(m.to(computed_in(m), copy=True), g, beta2, gain(beta2, maximize=group["maximize"])).to(m.dtype)
