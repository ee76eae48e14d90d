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

BEST_GRIDS: dict[str, Grid] = {
    "2 bits, l1": "log",
    "3 bits, l1": "float",
    "4 bits, l1": "float",
    "5 bits, l1": "float",
    "3 bits, linf": "log",
    "4 bits, linf": "log",
    "5 bits, linf": "log",
}
"""What did best on language in docs/convergence.md: by the loss for 2 bits, else by agreement with the exact sign over
all parameters. Where nothing is named, the mid-rise grid."""


def cub_codec(bits: int = BITS, scale: Scale = "l1", grid: Grid | None = None) -> Codec:
    """The vote for one bit, else levels; on one of :data:`BEST_GRIDS` unless told otherwise."""
    if type(bits) is int and bits == 1:
        return Vote()
    if grid is None:
        grid = BEST_GRIDS.get(f"{bits} bits, {scale}", "midrise")
    return Levels(bits, scale, grid)


class LionCub(DistributedLion):
    """The recipe of the Lion Cub paper, arXiv 2411.16462, on the grid that did well in our own study.

    ``bits=1`` is the 1-bit allreduce, 2 to 8 the p-bit allreduce of :class:`Levels` with ``scale`` and ``grid``; None:
    :data:`BEST_GRIDS`, which is "log" for 2 bits, "float" for 3 to 5, "midrise" beyond. The paper's own is "midtread".
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
