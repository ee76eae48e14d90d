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
"""On the logarithmic grid: within one standard error of global Lion on all of three tasks, in docs/convergence.md."""


def cub_codec(bits: int = BITS, scale: Scale = "l1", grid: Grid | None = None) -> Codec:
    """The vote for one bit, else levels: on the logarithmic grid for 4 and 5 bits, else on the mid-rise grid."""
    if type(bits) is int and bits == 1:
        return Vote()
    if grid is None:
        grid = "log" if bits in (4, 5) else "midrise"
    return Levels(bits, scale, grid)


class LionCub(DistributedLion):
    """The recipe of the Lion Cub paper, arXiv 2411.16462, on the grid that did well in our own study.

    ``bits=1`` is the 1-bit allreduce, 2 to 8 the p-bit allreduce of :class:`Levels` with ``scale`` and ``grid``; None:
    the logarithmic grid for 4 and 5 bits, else the mid-rise grid. The paper's own grid is "midtread".
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
