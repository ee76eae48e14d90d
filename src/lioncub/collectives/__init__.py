"""How payloads travel, in how many bytes and messages."""

from __future__ import annotations

from lioncub.codecs import Codec
from lioncub.collectives.auto import Auto
from lioncub.collectives.base import Collective, Outcome, Traffic, Wire
from lioncub.collectives.gather import GatherAll
from lioncub.collectives.hierarchical import Hierarchical
from lioncub.collectives.registry import BY_NAME, collective_from
from lioncub.collectives.server import Server
from lioncub.collectives.sum_allreduce import SumAllReduce
from lioncub.collectives.two_phase import TwoPhase
from lioncub.transport.comm import Comm
from lioncub.wire.envelope import Envelope, Steps

__all__ = [
    "BY_NAME",
    "Auto",
    "Codec",
    "Collective",
    "Comm",
    "Envelope",
    "GatherAll",
    "Hierarchical",
    "Outcome",
    "Server",
    "Steps",
    "SumAllReduce",
    "Traffic",
    "TwoPhase",
    "Wire",
    "collective_from",
]
