"""The codec that is recommended for a number of bits, by the evidence of docs/convergence.md."""

from __future__ import annotations

from lioncub.codecs.base import Codec
from lioncub.codecs.levels import Grid, Levels, Scale
from lioncub.codecs.vote import Vote

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
"""The best grids on language in docs/convergence.md: by the loss for 2 bits, else by agreement with the exact sign over
all parameters. Where nothing is named, the mid-rise grid."""


def cub_codec(bits: int = BITS, scale: Scale = "l1", grid: Grid | None = None) -> Codec:
    """The vote for one bit, else levels; on one of :data:`BEST_GRIDS` unless told otherwise."""
    if type(bits) is int and bits == 1:
        return Vote()
    if grid is None:
        grid = BEST_GRIDS.get(f"{bits} bits, {scale}", "midrise")
    return Levels(bits, scale, grid)
