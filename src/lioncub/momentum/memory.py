"""The decay rate of the momentum and the warm-up of the learning rate, as functions of the step.

    β2(t) = min(β2, t / (t + c))          lr(t) = lr · min(1, (t + 1) / w)

t counts the steps of a parameter group since it was made, c is ``memory`` and w ``warmup``. A growing momentum is, up
to β2, an average over about a c-th of the steps so far, in runs of any length; the first one is the first gradient.
c = 0: β2 from the first step, as in the papers. Both are the same on all workers and follow from the step alone, so no
state is kept.
"""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias

from lioncub.errors import ConfigError

Memory: TypeAlias = float | Literal["growing", "constant"]

NAMED: dict[str, float] = {"growing": 10.0, "constant": 0.0}
"""c by name."""


def check(group: dict[str, Any]) -> None:
    """Raise :class:`ConfigError` for settings that cannot work."""
    memory, warmup = group["memory"], group["warmup"]
    if memory not in NAMED if isinstance(memory, str) else not _is_number(memory):
        raise ConfigError(f'memory={memory!r}: "growing", "constant", or a finite number, 0 or more')
    if warmup is not None and (type(warmup) is not int or warmup < 0):
        raise ConfigError(f"warmup={warmup!r}: a number of steps, 0 or more, or None for the usual one")
    if type(group["since"]) is not int or group["since"] < 0:
        raise ConfigError(f"since={group['since']!r}: the step at which the group was added")


def betas_now(group: dict[str, Any]) -> tuple[float, float]:
    """β1, and β2 of the coming step."""
    beta1, beta2 = group["betas"]
    return beta1, beta2_at(max(group["step"] - group["since"], 0), beta2, share(group["memory"]))


def lr_now(group: dict[str, Any]) -> float:
    """The learning rate of the coming step."""
    warmup = group["warmup"]
    if warmup is None:
        warmup = usual_warmup(group["betas"][1], group["memory"])
    return lr_at(max(group["step"] - group["since"], 0), float(group["lr"]), warmup)


def usual_warmup(beta2: float, memory: Memory) -> int:
    """2 / (1 - β2) steps, Ma and Yarats' rule for adaptive methods, arXiv 1910.04209; none with constant memory."""
    return round(2 / (1 - beta2)) if share(memory) else 0


def share(memory: Memory) -> float:
    """c as a number, also where ``memory`` is a name."""
    return NAMED[memory] if isinstance(memory, str) else float(memory)


def beta2_at(t: int, beta2: float, memory: float) -> float:
    return min(beta2, t / (t + memory)) if memory else beta2


def lr_at(t: int, lr: float, warmup: int) -> float:
    return lr * min(1.0, (t + 1) / warmup) if warmup else lr


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
