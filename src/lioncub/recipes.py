"""Recipes: the papers' settings on the one optimizer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lioncub.codecs import Codec, Levels, Vote
from lioncub.codecs.levels import Grid, Scale
from lioncub.errors import ConfigError
from lioncub.momentum import MomentumSync
from lioncub.optimizer import DistributedLion

SELECTIVE = MomentumSync(every=64, budget=0.25)
"""The most divergent tensors, for a quarter of a bit per parameter and step."""


BITS = 4
"""On the float grid: within one standard error of global Lion on all of three tasks, in docs/convergence.md."""


def cub_codec(bits: int = BITS, scale: Scale = "l1", grid: Grid | None = None) -> Codec:
    """The vote for one bit, else levels; on the grid that agreed best with the exact sign, unless told otherwise."""
    if type(bits) is int and bits == 1:
        return Vote()
    return Levels(bits, scale, best_grid(bits, scale) if grid is None else grid)


def best_grid(bits: int, scale: Scale) -> Grid:
    """2 bits have no room for levels below the mean, L∞ knows no mean, and beyond 5 bits even steps are fine enough."""
    if bits not in range(2, 6):
        return "midrise"
    return "float" if bits > 2 and scale == "l1" else "log"


class LionCub(DistributedLion):
    """The recipe of the Lion Cub paper, arXiv 2411.16462, on the grid that did well in our own study.

    ``bits=1`` is the 1-bit allreduce, 2 to 8 the p-bit allreduce of :class:`Levels` with ``scale`` and ``grid``; None:
    "log" for 2 bits, "float" for 3 to 5, "midrise" beyond. The paper's own grid is "midtread".
    Momenta are synchronised selectively, :data:`SELECTIVE` unless told otherwise.
    All other arguments are :class:`DistributedLion`'s.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        bits: int = BITS,
        scale: Scale = "l1",
        grid: Grid | None = None,
        momentum_sync: MomentumSync | None = SELECTIVE,
        **others: Any,
    ) -> None:
        if "codec" in others:
            raise ConfigError("LionCub chooses the codec by bits, scale and grid: use DistributedLion to pass one")
        codec = cub_codec(bits, scale, grid)
        super().__init__(params, lr, betas, weight_decay, codec=codec, momentum_sync=momentum_sync, **others)
