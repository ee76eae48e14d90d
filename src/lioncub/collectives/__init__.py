"""How payloads travel, in how many bytes and messages."""

from __future__ import annotations

from lioncub.collectives.auto import Auto
from lioncub.collectives.base import Collective, Outcome, Traffic, Wire
from lioncub.collectives.gather import GatherAll
from lioncub.collectives.hierarchical import Hierarchical
from lioncub.collectives.registry import BY_NAME, collective_from
from lioncub.collectives.server import Server
from lioncub.collectives.sum_allreduce import SumAllReduce
from lioncub.collectives.two_phase import TwoPhase

__all__ = [
    "BY_NAME",
    "Auto",
    "Collective",
    "GatherAll",
    "Hierarchical",
    "Outcome",
    "Server",
    "SumAllReduce",
    "Traffic",
    "TwoPhase",
    "Wire",
    "collective_from",
]
