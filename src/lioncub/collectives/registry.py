"""Collectives by the names that users write."""

from __future__ import annotations

from lioncub.collectives.auto import Auto
from lioncub.collectives.base import Collective
from lioncub.collectives.gather import GatherAll
from lioncub.collectives.server import Server
from lioncub.collectives.sum_allreduce import SumAllReduce
from lioncub.collectives.two_phase import TwoPhase
from lioncub.errors import ConfigError

BY_NAME: dict[str, type[Collective]] = {
    "auto": Auto,
    "two-phase": TwoPhase,
    "gather": GatherAll,
    "server": Server,
    "sum": SumAllReduce,
}


def collective_from(value: str | Collective) -> Collective:
    """The collective of that name, or the object itself."""
    if isinstance(value, Collective):
        return value
    if not isinstance(value, str) or value not in BY_NAME:
        raise ConfigError(
            f"collective={value!r}: choose one of {', '.join(map(repr, BY_NAME))}, or a collective object"
        )
    return BY_NAME[value]()
