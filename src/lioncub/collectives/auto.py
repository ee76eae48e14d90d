"""The choice of a collective by size and number of workers."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from lioncub.codecs import Codec
from lioncub.collectives.base import Collective, Traffic, Wire
from lioncub.collectives.gather import GatherAll
from lioncub.collectives.two_phase import TwoPhase
from lioncub.kernels.layout import Layout
from lioncub.transport.comm import Comm
from lioncub.wire.envelope import Envelope, Steps


@dataclass(frozen=True)
class Auto(Collective):
    """Per bucket: the flat collective that moves fewer bytes, a second phase counting as ``latency_bytes``."""

    latency_bytes: int = 32 * 1024

    def resolve(self, codec: Codec, layout: Layout, comm: Comm) -> Collective:
        two_phase = TwoPhase().resolve(codec, layout, comm)
        if two_phase.ordered:  # accelerators' backends: one kind of operation keeps them in step
            return two_phase
        wire = Wire.of(codec, layout, comm.size)
        gathered = GatherAll().traffic(wire, comm).sent_bytes
        return GatherAll() if gathered <= two_phase.traffic(wire, comm).sent_bytes + self.latency_bytes else two_phase

    def combine(self, mail: Envelope, codec: Codec, payload: Tensor) -> Steps[Tensor]:
        raise AssertionError("resolve() replaces Auto before anything is sent")

    def traffic(self, wire: Wire, comm: Comm) -> Traffic:
        raise AssertionError("resolve() replaces Auto before anything is sent")
