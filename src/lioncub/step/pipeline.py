"""One step's messages: sent bucket by bucket, awaited, checked, and then applied."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import torch
from torch import Tensor

from lioncub.collectives import Outcome, Traffic
from lioncub.collectives.base import TAGS_PER_EXCHANGE
from lioncub.distributed.failure_detection import missing_workers
from lioncub.errors import GradientChangedError, PeerError, PeerLostError, ReplicasDifferError
from lioncub.kernels.buffers import pool
from lioncub.momentum.policy import MomentumSync
from lioncub.stats import Stats
from lioncub.step.buckets import Bucket
from lioncub.step.in_flight import Flight, Pilot
from lioncub.step.parameters import Slot, Witness
from lioncub.step.synchronizer import Piece, Synchronizer
from lioncub.step.validation import Rounding
from lioncub.transport.comm import Comm
from lioncub.wire import consensus
from lioncub.wire.handshake import FIRST_FREE_TAG
from lioncub.wire.headers import Flags, Header, Stamp
from lioncub.wire.outliers import Reputation, from_wire


@dataclass(frozen=True)
class Shipment:
    """A bucket on its way, and what this worker put into it."""

    bucket: Bucket
    header: Header
    flight: Flight[Outcome]
    witnesses: tuple[Witness, ...]
    """Of the gradients in it."""

    def advancing(self) -> list[bool]:
        """Which momenta take in their gradient: not where the worker abstained, nor where it is not what was sent."""
        same = [witness.looks_the_same() for witness in self.witnesses]
        if not all(same):
            name = self.witnesses[same.index(False)].slot.name
            warnings.warn(
                f"the gradient of {name} changed between exchange() and apply(): its momentum does not take it in",
                stacklevel=4,
            )
        return [unchanged and self.header.votes_on(tensor) for tensor, unchanged in enumerate(same)]


@dataclass
class Momenta:
    """The momentum exchanges of one step."""

    pieces: list[Piece] = field(default_factory=list)
    averages: Flight[Outcome] | None = None
    samples: Flight[Tensor] | None = None


@dataclass
class Load:
    """What is on its way for one step."""

    shipments: list[Shipment] = field(default_factory=list)
    momenta: Momenta = field(default_factory=Momenta)
    traffic: Traffic = field(default_factory=Traffic)
    seconds_encoding: float = 0.0
    changed: str = ""
    """A parameter whose gradient is not what was sent, if there is one."""


@dataclass(frozen=True)
class Delivery:
    """A step whose exchange is complete and checked: it only has to be applied."""

    load: Load
    seconds_waited: float
    repaired: tuple[int, ...] = ()
    agreements: tuple[float, ...] = ()
    suspects: tuple[int, ...] = ()

    def apply_(self, synchronizer: Synchronizer | None, rounding: Rounding, step: int) -> Stats:
        """Move the parameters, advance the momenta, write averages over them."""
        started, load = perf_counter(), self.load
        counts = [s.bucket.apply_(s.flight.result, s.advancing(), rounding) for s in load.shipments]
        if synchronizer and load.momenta.averages:
            synchronizer.write_back_(load.momenta.pieces, load.momenta.averages.result)
        if synchronizer:
            synchronizer.choose_(step, load.momenta.samples.result if load.momenta.samples else None)
        agreed, voted = sum(agreed for agreed, _ in counts), sum(voted for _, voted in counts)
        return self._statistics(step, agreed, voted, perf_counter() - started)

    def _statistics(self, step: int, agreed: int, voted: int, seconds_applying: float) -> Stats:
        rolls = [shipment.flight.result.headers for shipment in self.load.shipments]
        return Stats(
            step=step,
            num_parameters=sum(shipment.bucket.layout.numel for shipment in self.load.shipments),
            bytes_sent=self.load.traffic.sent_bytes,
            bytes_received=self.load.traffic.received_bytes,
            num_messages=self.load.traffic.num_messages,
            seconds_waited=self.seconds_waited,
            seconds_encoding=self.load.seconds_encoding,
            seconds_applying=seconds_applying,
            voters=min((sum(not header.abstains for header in roll) for roll in rolls), default=0),
            abstentions=tuple(sorted({header.rank for roll in rolls for header in roll if header.abstains})),
            agreement=agreed / voted if voted else float("nan"),
            stopping=tuple(consensus.flagged(rolls[-1], Flags.STOPPING)) if rolls else (),
            agreements=self.agreements,
            suspects=self.suspects,
            repaired=self.repaired,
        )


class Courier:
    """Carries a step between this worker and the others. One for the life of an optimizer."""

    def __init__(self, comm: Comm) -> None:
        self.comm = comm
        self.nonce = 0
        """Agreed on with the plan: the survivors of this group meet under it."""
        self._pilot = Pilot(threaded=comm.size > 1 and comm.device.type == "cpu")
        self._load = Load()
        self._reputation = Reputation(comm.size)
        self._lost: PeerError | None = None
        weakref.finalize(self, pool.let_go).atexit = False

    def check_usable(self) -> None:
        """Raise again once a worker is lost: the group cannot be used any more."""
        if self._lost:
            raise type(self._lost)(self._lost.ranks, f"no exchange is possible any more; first: {self._lost.detail}")

    def carries(self, bucket: Bucket) -> bool:
        return any(shipment.bucket is bucket for shipment in self._load.shipments)

    def note_change(self, name: str) -> None:
        """A gradient is not, or may not be, what was sent."""
        self._load.changed = self._load.changed or name

    def verdict(self) -> Flags:
        """What the last header of a step says about the gradients that left before it."""
        for shipment in self._load.shipments:
            for witness in shipment.witnesses:
                if not witness.agrees():
                    self.note_change(witness.slot.name)
        return Flags.CHANGED if self._load.changed else Flags.NONE

    def ship(self, bucket: Bucket, stamp: Stamp, *, early: bool = False) -> None:
        """Encode a bucket and launch its exchange. ``early``: backward goes on and could still change gradients."""
        started = perf_counter()
        witnesses = tuple(Witness.of(slot, with_content=early) for slot in bucket.slots)
        parcel, payload = bucket.parcel(self.comm, stamp, _tag(bucket.index))
        flight = Flight(bucket.collective.exchange(self.comm, parcel, payload), ordered=bucket.collective.ordered)
        del payload  # the exchange owns it now, and drops it when it has left
        self._pilot.launch(flight)
        self._load.traffic += bucket.traffic(self.comm)
        self._load.shipments.append(Shipment(bucket, parcel.header, flight, witnesses))
        self._load.seconds_encoding += perf_counter() - started

    def ship_momenta(self, synchronizer: Synchronizer, step: int) -> None:
        """Launch the momentum exchanges that are due, after all buckets."""
        started, load, tag = perf_counter(), self._load, _tag(len(self._load.shipments))
        load.traffic += synchronizer.traffic(step)
        load.momenta.pieces = synchronizer.due(step)
        if load.momenta.pieces:
            voted = {
                id(slot)
                for shipment in load.shipments
                for tensor, slot in enumerate(shipment.bucket.slots)
                if shipment.header.votes_on(tensor)
            }
            load.momenta.averages = synchronizer.exchange(load.momenta.pieces, voted, step, tag)
            self._pilot.launch(load.momenta.averages)
        if synchronizer.measured(step):
            load.momenta.samples = Flight(synchronizer.gather_samples(step, tag + TAGS_PER_EXCHANGE), ordered=False)
            self._pilot.launch(load.momenta.samples)
        load.seconds_encoding += perf_counter() - started

    def deliver(self, quorum: int, repair: Callable[[ReplicasDifferError], list[int]] | None = None) -> Delivery:
        """Wait for everything that was shipped, and check it. ``repair`` mends replicas that differ, or raises."""
        load = self._unload()
        seconds_waited = self._land()
        if load.changed:
            raise GradientChangedError(consensus.changed_message([self.comm.rank], f"the gradient of {load.changed}"))
        repaired: tuple[int, ...] = ()
        for shipment in load.shipments:
            headers, what = shipment.flight.result.headers, shipment.bucket.title
            try:
                consensus.check(headers, quorum=quorum, what=what, repaired=bool(repaired))
            except ReplicasDifferError as problem:
                if repair is None:
                    raise
                repaired = tuple(repair(problem))
                consensus.check(headers, quorum=quorum, what=what, repaired=True)
        if load.momenta.averages:
            consensus.check(load.momenta.averages.result.headers, quorum=0, what="the averages of momenta")
        if load.shipments:
            self._reputation.note([from_wire(header.agreement) for header in load.shipments[-1].flight.result.headers])
        return Delivery(load, seconds_waited, repaired, self._reputation.rates, self._suspects())

    def _suspects(self) -> tuple[int, ...]:
        return tuple(self.comm.global_rank(worker) for worker in self._reputation.suspects())

    def average(self, slots: Sequence[Slot], step: int) -> None:
        """Average some momenta over the workers now, in float32."""
        synchronizer = Synchronizer(MomentumSync(dtype=torch.float32), (), self.comm)
        pieces = [Piece(slot, 0, slot.param.numel()) for slot in slots]
        flight = synchronizer.exchange(pieces, set(), step, _tag(0))
        self._pilot.launch(flight)
        self._land()
        synchronizer.write_back_(pieces, flight.result)

    def call_off(self, buckets: Sequence[Bucket], stamp: Stamp) -> None:
        """End a step without applying it. ``stamp.flags`` says why; raises unless every worker says the same.

        What has not left yet leaves now, with nothing in it but the reason: others may be waiting for it.
        """
        for bucket in buckets:
            if not self.carries(bucket):
                self.ship(bucket, stamp)
        load = self._unload()
        self._land()
        if load.shipments:
            last = load.shipments[-1]
            headers = last.flight.result.headers
            if len(consensus.flagged(headers, stamp.flags)) < len(headers):
                consensus.check(headers, quorum=0, what=last.bucket.title)

    def _unload(self) -> Load:
        load, self._load = self._load, Load()
        return load

    def _land(self) -> float:
        try:
            return self._pilot.land()
        except PeerError as problem:
            self.comm.abandon()
            ranks = missing_workers(self.comm, self.nonce, problem.ranks)
            self._lost = type(problem)(ranks, problem.detail)
            raise self._lost from problem
        except KeyboardInterrupt:
            self.comm.abandon()
            self._lost = PeerLostError([self.comm.rank], "interrupted while messages were in flight")
            raise


def _tag(exchange: int) -> int:
    return FIRST_FREE_TAG + TAGS_PER_EXCHANGE * exchange
