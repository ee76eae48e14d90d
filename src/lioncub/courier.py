"""One step's messages: sent bucket by bucket, awaited, checked, and then applied."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from lioncub import guard
from lioncub.agreement import FIRST_FREE_TAG
from lioncub.buckets import Bucket, Stamp, Witness
from lioncub.collectives import Outcome, Traffic
from lioncub.collectives.base import TAGS_PER_EXCHANGE
from lioncub.comm import Comm
from lioncub.errors import GradientChangedError, PeerError
from lioncub.guard import Flags, Header
from lioncub.overlap import Flight, Pilot
from lioncub.stats import Stats
from lioncub.synchronizer import Piece, Synchronizer


@dataclass(frozen=True)
class Shipment:
    """A bucket on its way, and what this worker put into it."""

    bucket: Bucket
    header: Header
    flight: Flight[Outcome]
    witnesses: tuple[Witness, ...]
    """Of the gradients, where backward goes on and could still change them."""


@dataclass
class Momenta:
    """The momentum exchanges of one step."""

    pieces: list[Piece] = field(default_factory=list)
    averages: Flight[Outcome] | None = None
    samples: Flight[Tensor] | None = None


@dataclass(frozen=True)
class Delivery:
    """A step whose exchange is complete and checked: it only has to be applied."""

    shipments: list[Shipment]
    momenta: Momenta
    traffic: Traffic
    seconds_waited: float

    def apply_(self, synchronizer: Synchronizer | None) -> Stats:
        """Move the parameters, advance the momenta, write averages over them."""
        counts = [shipment.bucket.apply_(shipment.flight.result, shipment.header) for shipment in self.shipments]
        if synchronizer and self.momenta.averages:
            synchronizer.write_back_(self.momenta.pieces, self.momenta.averages.result)
        if synchronizer and self.momenta.samples:
            synchronizer.choose_(self.momenta.samples.result)
        return self._statistics(sum(agreed for agreed, _ in counts), sum(voted for _, voted in counts))

    def _statistics(self, agreed: int, voted: int) -> Stats:
        rolls = [shipment.flight.result.headers for shipment in self.shipments]
        return Stats(
            step=self.shipments[0].header.step if self.shipments else -1,
            num_parameters=sum(shipment.bucket.layout.numel for shipment in self.shipments),
            bytes_sent=self.traffic.sent_bytes,
            bytes_received=self.traffic.received_bytes,
            num_messages=self.traffic.num_messages,
            seconds_waited=self.seconds_waited,
            voters=min((sum(not header.abstains for header in roll) for roll in rolls), default=0),
            abstentions=tuple(sorted({header.rank for roll in rolls for header in roll if header.abstains})),
            agreement=agreed / voted if voted else float("nan"),
        )


class Courier:
    """Carries a step between this worker and the others. One for the life of an optimizer."""

    def __init__(self, comm: Comm, *, overlap: bool) -> None:
        self.comm = comm
        self._pilot = Pilot(threaded=overlap and comm.device.type == "cpu")
        self._shipments: list[Shipment] = []
        self._momenta = Momenta()
        self._traffic = Traffic()
        self._lost: PeerError | None = None

    def check_usable(self) -> None:
        """Raise again once a worker is lost: the group cannot be used any more."""
        if self._lost:
            raise type(self._lost)(f"no exchange is possible any more: {self._lost}", self._lost.ranks)

    def carries(self, bucket: Bucket) -> bool:
        return any(shipment.bucket is bucket for shipment in self._shipments)

    def verdict(self) -> Flags:
        """What the last header of a step says about the gradients that left before it."""
        witnesses = (witness for shipment in self._shipments for witness in shipment.witnesses)
        return Flags.NONE if all(witness.looks_true() for witness in witnesses) else Flags.CHANGED

    def ship(self, bucket: Bucket, stamp: Stamp, witnesses: tuple[Witness, ...] = ()) -> None:
        """Encode a bucket and launch its exchange."""
        parcel = bucket.parcel(self.comm, stamp, _tag(bucket.index))
        flight = Flight(bucket.collective.exchange(self.comm, parcel), ordered=bucket.collective.ordered)
        self._pilot.launch(flight)
        self._traffic += bucket.traffic(self.comm)
        self._shipments.append(Shipment(bucket, parcel.header, flight, witnesses))

    def ship_momenta(self, synchronizer: Synchronizer, step: int) -> None:
        """Launch the momentum exchanges that are due, after all buckets."""
        tag = _tag(len(self._shipments))
        self._traffic += synchronizer.traffic(step)
        pieces = self._momenta.pieces = synchronizer.due(step)
        if pieces:
            voted = {
                id(slot)
                for shipment in self._shipments
                for tensor, slot in enumerate(shipment.bucket.slots)
                if shipment.header.votes_on(tensor)
            }
            collective, parcel = synchronizer.exchange(pieces, voted, step, tag)
            averages = Flight(collective.exchange(self.comm, parcel), ordered=collective.ordered)
            self._pilot.launch(averages)
            self._momenta.averages = averages
        if synchronizer.policy.measures_at(step):
            samples = Flight(synchronizer.gather_samples(tag + TAGS_PER_EXCHANGE), ordered=False)
            self._pilot.launch(samples)
            self._momenta.samples = samples

    def deliver(self, quorum: int) -> Delivery:
        """Wait for everything that was shipped, and check it."""
        witnesses = [witness for shipment in self._shipments for witness in shipment.witnesses]
        changed = [witness.slot.name for witness in witnesses if not witness.is_true()]  # while bytes travel
        shipments, momenta, traffic = self._unload()
        seconds_waited = self._land()
        for shipment in shipments:
            guard.check(shipment.flight.result.headers, quorum=quorum, what=shipment.bucket.title)
        if changed:
            raise GradientChangedError(guard.changed_message([self.comm.rank], f"the gradient of {changed[0]}"))
        return Delivery(shipments, momenta, traffic, seconds_waited)

    def abandon(self) -> None:
        """Complete what is in flight, for the others' sake, and forget it."""
        shipments, _, _ = self._unload()
        if shipments:
            self._land()

    def _unload(self) -> tuple[list[Shipment], Momenta, Traffic]:
        load = self._shipments, self._momenta, self._traffic
        self._shipments, self._momenta, self._traffic = [], Momenta(), Traffic()
        return load

    def _land(self) -> float:
        try:
            return self._pilot.land()
        except PeerError as problem:
            self._lost = problem
            raise


def _tag(exchange: int) -> int:
    return FIRST_FREE_TAG + TAGS_PER_EXCHANGE * exchange
