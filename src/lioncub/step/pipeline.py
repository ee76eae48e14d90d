"""One step of all workers: send, combine, check, apply.

1. send     each bucket is encoded and its exchange launched, by a gradient hook in backward or by :meth:`exchange`;
2. combine  the exchanges run to their end, each in a thread of its own;
3. check    everybody's headers, the same on all workers: they go on together or raise together;
4. apply    parameters move, momenta advance.

Nothing is written before everything is checked.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import torch
from torch import Tensor

from lioncub.collectives import Outcome, Traffic
from lioncub.distributed.failure_detection import missing_workers
from lioncub.errors import GradientChangedError, PeerError, PeerLostError, ReplicasDifferError
from lioncub.kernels.buffers import pool
from lioncub.momentum.policy import MomentumSync
from lioncub.stats import Stats
from lioncub.step.buckets import Bucket
from lioncub.step.in_flight import Exchanges, InFlight
from lioncub.step.parameters import SentGradient, Slot
from lioncub.step.synchronizer import Piece, Synchronizer
from lioncub.step.validation import Rounding
from lioncub.transport.comm import Comm
from lioncub.wire import consensus
from lioncub.wire.envelope import TAGS_PER_EXCHANGE
from lioncub.wire.handshake import FIRST_FREE_TAG
from lioncub.wire.headers import Flags, Header, Stamp
from lioncub.wire.outliers import AgreementRates, from_wire

UNANIMOUS_STEPS, MANY = 10, 1000
"""Different data do not make workers agree on so many parameters for so many steps."""


@dataclass(frozen=True)
class SentBucket:
    """A bucket in flight, and what this worker put into it."""

    bucket: Bucket
    header: Header
    exchange: InFlight[Outcome]
    gradients: tuple[SentGradient, ...]

    def advancing(self) -> list[bool]:
        """Which momenta take in their gradient: not where the worker abstained, nor where it is not what was sent."""
        same = [gradient.looks_the_same() for gradient in self.gradients]
        if not all(same):
            name = self.gradients[same.index(False)].slot.name
            warnings.warn(
                f"the gradient of {name} changed between exchange() and apply(): its momentum does not take it in",
                stacklevel=4,
            )
        return [unchanged and self.header.votes_on(tensor) for tensor, unchanged in enumerate(same)]


@dataclass
class Momenta:
    """The momentum exchanges of one step."""

    pieces: list[Piece] = field(default_factory=list)
    averages: InFlight[Outcome] | None = None
    samples: InFlight[Tensor] | None = None


@dataclass
class Sent:
    """All that is in flight for one step."""

    buckets: list[SentBucket] = field(default_factory=list)
    momenta: Momenta = field(default_factory=Momenta)
    traffic: Traffic = field(default_factory=Traffic)
    seconds_encoding: float = 0.0
    changed: str = ""
    """A parameter whose gradient is not what was sent, if there is one."""


class Pipeline:
    """The steps of one optimizer."""

    def __init__(self, comm: Comm) -> None:
        self.comm = comm
        self.nonce = 0
        """Agreed on with the plan: the survivors of this group meet under it."""
        self._exchanges = Exchanges(threaded=comm.size > 1 and comm.device.type == "cpu")
        self._sent = Sent()
        self._rates = AgreementRates(comm.size)
        self._lost: PeerError | None = None
        weakref.finalize(self, pool.let_go).atexit = False

    def check_usable(self) -> None:
        """Raise again once a worker is lost: the group cannot be used any more."""
        if self._lost:
            raise type(self._lost)(self._lost.ranks, f"no exchange is possible any more; first: {self._lost.detail}")

    # ---- send -------------------------------------------------------------------------------------------------------

    def has_sent(self, bucket: Bucket) -> bool:
        return any(sent.bucket is bucket for sent in self._sent.buckets)

    def send(self, bucket: Bucket, stamp: Stamp, *, early: bool = False) -> None:
        """Encode a bucket and launch its exchange. ``early``: backward goes on and could still change gradients."""
        started, sent = perf_counter(), self._sent
        gradients = tuple(SentGradient.of(slot, with_content=early) for slot in bucket.slots)
        header, exchange = bucket.exchange(self.comm, stamp, _tag(bucket.index))
        self._exchanges.launch(exchange)
        sent.buckets.append(SentBucket(bucket, header, exchange, gradients))
        sent.traffic += bucket.traffic
        sent.seconds_encoding += perf_counter() - started

    def send_momenta(self, synchronizer: Synchronizer, step: int) -> None:
        """Launch the momentum exchanges that are due, after all buckets."""
        started, sent, tag = perf_counter(), self._sent, _tag(len(self._sent.buckets))
        sent.traffic += synchronizer.traffic(step)
        sent.momenta.pieces = synchronizer.due(step)
        if sent.momenta.pieces:
            voted = {
                id(slot)
                for each in sent.buckets
                for tensor, slot in enumerate(each.bucket.slots)
                if each.header.votes_on(tensor)
            }
            sent.momenta.averages = synchronizer.exchange(sent.momenta.pieces, voted, step, tag)
            self._exchanges.launch(sent.momenta.averages)
        if synchronizer.measured(step):
            samples = synchronizer.gather_samples(step, tag + TAGS_PER_EXCHANGE)
            sent.momenta.samples = InFlight(samples, ordered=False)
            self._exchanges.launch(sent.momenta.samples)
        sent.seconds_encoding += perf_counter() - started

    def note_change(self, name: str) -> None:
        """A gradient is not, or may not be, what was sent."""
        self._sent.changed = self._sent.changed or name

    def changes(self) -> Flags:
        """What the last header of a step says about the gradients that left before it."""
        for sent in self._sent.buckets:
            for gradient in sent.gradients:
                if not gradient.is_the_same():
                    self.note_change(gradient.slot.name)
        return Flags.CHANGED if self._sent.changed else Flags.NONE

    # ---- combine, check ---------------------------------------------------------------------------------------------

    def complete(self, quorum: int, repair: Callable[[ReplicasDifferError], list[int]] | None = None) -> CheckedStep:
        """Wait for all that was sent, and check it. ``repair`` mends replicas that differ, or raises."""
        sent, self._sent = self._sent, Sent()
        seconds_waited = self._wait()
        if sent.changed:
            raise GradientChangedError(consensus.changed_message([self.comm.rank], f"the gradient of {sent.changed}"))
        repaired: tuple[int, ...] = ()
        for each in sent.buckets:
            headers, what = each.exchange.result.headers, each.bucket.title
            try:
                consensus.check(headers, quorum=quorum, what=what, repaired=bool(repaired))
            except ReplicasDifferError as problem:
                if repair is None:
                    raise
                repaired = tuple(repair(problem))
                consensus.check(headers, quorum=quorum, what=what, repaired=True)
        if sent.momenta.averages:
            consensus.check(sent.momenta.averages.result.headers, quorum=0, what="the averages of momenta")
        if sent.buckets:
            self._rates.note([from_wire(header.agreement) for header in sent.buckets[-1].exchange.result.headers])
            self._warn_of_equal_gradients(sum(each.bucket.layout.numel for each in sent.buckets))
        suspects = tuple(self.comm.global_rank(worker) for worker in self._rates.suspects())
        return CheckedStep(sent, seconds_waited, repaired, self._rates.rates, suspects)

    def _warn_of_equal_gradients(self, num_parameters: int) -> None:
        if self.comm.size > 1 and num_parameters >= MANY and self._rates.unanimous_steps == UNANIMOUS_STEPS:
            warnings.warn(
                f"all workers have agreed on every parameter for {UNANIMOUS_STEPS} steps: they see the same batches, "
                "or DistributedDataParallel averages their gradients before lioncub exchanges them. Give each worker "
                "data of its own (DistributedSampler, a seed for each rank), and lioncub the model without the wrapper",
                stacklevel=5,
            )

    def cancel(self, buckets: Sequence[Bucket], synchronizer: Synchronizer | None, stamp: Stamp) -> None:
        """End a step without applying it. ``stamp.flags`` says why; raises unless every worker says the same.

        What has not left yet leaves now, buckets with nothing in them but the reason: others may be waiting for it.
        """
        for bucket in buckets:
            if not self.has_sent(bucket):
                self.send(bucket, stamp)
        if synchronizer:
            self.send_momenta(synchronizer, stamp.step)
        sent, self._sent = self._sent, Sent()
        self._wait()
        if sent.buckets:
            headers = sent.buckets[-1].exchange.result.headers
            if len(consensus.flagged(headers, stamp.flags)) < len(headers):
                consensus.check(headers, quorum=0, what=sent.buckets[-1].bucket.title)

    def average(self, slots: Sequence[Slot], step: int) -> None:
        """Average some momenta over the workers now, in float32."""
        synchronizer = Synchronizer(MomentumSync(dtype=torch.float32), (), self.comm)
        pieces = [Piece(slot, 0, slot.param.numel()) for slot in slots]
        exchange = synchronizer.exchange(pieces, set(), step, _tag(0))
        self._exchanges.launch(exchange)
        self._wait()
        synchronizer.write_back_(pieces, exchange.result)

    def _wait(self) -> float:
        try:
            return self._exchanges.wait()
        except PeerError as problem:
            self.comm.abandon()
            ranks = missing_workers(self.comm, self.nonce, problem.ranks)
            self._lost = type(problem)(ranks, problem.detail)
            raise self._lost from problem
        except KeyboardInterrupt:
            self.comm.abandon()
            self._lost = PeerLostError([self.comm.rank], "interrupted while messages were in flight")
            raise


# ---- apply ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CheckedStep:
    """A step whose exchanges are complete and checked: it only has to be applied."""

    sent: Sent
    seconds_waited: float
    repaired: tuple[int, ...] = ()
    agreements: tuple[float, ...] = ()
    suspects: tuple[int, ...] = ()

    def apply_(self, synchronizer: Synchronizer | None, rounding: Rounding, step: int) -> Stats:
        """Move the parameters, advance the momenta, write averages over them."""
        started, momenta = perf_counter(), self.sent.momenta
        counts = [each.bucket.apply_(each.exchange.result, each.advancing(), rounding) for each in self.sent.buckets]
        if synchronizer and momenta.averages:
            synchronizer.write_back_(momenta.pieces, momenta.averages.result)
        if synchronizer:
            synchronizer.choose_(step, momenta.samples.result if momenta.samples else None)
        agreed, voted = sum(agreed for agreed, _ in counts), sum(voted for _, voted in counts)
        return self._statistics(step, agreed, voted, perf_counter() - started)

    def _statistics(self, step: int, agreed: int, voted: int, seconds_applying: float) -> Stats:
        headers = [each.exchange.result.headers for each in self.sent.buckets]
        return Stats(
            step=step,
            num_parameters=sum(each.bucket.layout.numel for each in self.sent.buckets),
            bytes_sent=self.sent.traffic.sent_bytes,
            bytes_received=self.sent.traffic.received_bytes,
            num_messages=self.sent.traffic.num_messages,
            seconds_waited=self.seconds_waited,
            seconds_encoding=self.sent.seconds_encoding,
            seconds_applying=seconds_applying,
            voters=min((sum(not header.abstains for header in row) for row in headers), default=0),
            abstentions=tuple(sorted({header.rank for row in headers for header in row if header.abstains})),
            agreement=agreed / voted if voted else float("nan"),
            stopping=tuple(consensus.flagged(headers[-1], Flags.STOPPING)) if headers else (),
            agreements=self.agreements,
            suspects=self.suspects,
            repaired=self.repaired,
        )


def _tag(exchange: int) -> int:
    return FIRST_FREE_TAG + TAGS_PER_EXCHANGE * exchange
