"""Exchanges in flight, and the hooks that launch them while backward goes on."""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from lioncub.buckets import Bucket
from lioncub.comm import Pending
from lioncub.errors import PeerError

T = TypeVar("T")


class Flight(Generic[T]):
    """One exchange on its way. ``ordered`` flights may not mingle with others: they fly from start to end at once."""

    def __init__(self, exchange: Generator[Pending, None, T], *, ordered: bool) -> None:
        self._exchange = exchange
        self._pending = Pending()
        self.ordered = ordered
        self.landed = threading.Event()
        self.error: Exception | None = None
        self._result: T | None = None

    @property
    def result(self) -> T:
        assert self._result is not None, "read after landing only"
        return self._result

    def advance(self) -> None:
        """Wait for what is in flight, then run the exchange up to its next launch or its end."""
        try:
            try:
                self._pending.wait()
            except PeerError as problem:
                self._pending = self._exchange.throw(problem)
            else:
                self._pending = next(self._exchange)
        except StopIteration as finished:
            self._result = finished.value
            self.landed.set()
        except Exception as problem:
            self.cancel(problem)

    def cancel(self, problem: Exception) -> None:
        self.error = problem
        self.landed.set()


class Pilot:
    """Advances flights in rounds: in a thread of its own while backward goes on, else inside :meth:`land`."""

    def __init__(self, *, threaded: bool) -> None:
        self._threaded = threaded
        self._flights: list[Flight[Any]] = []
        self._queue: queue.SimpleQueue[Flight[Any] | None] = queue.SimpleQueue()
        self._lost: list[PeerError] = []
        self._wreck: list[Flight[Any]] = []
        self._thread: threading.Thread | None = None

    def launch(self, flight: Flight[Any]) -> None:
        if not flight.ordered:
            flight.advance()  # encode and post now, so that the wire is busy from here on
        self._flights.append(flight)
        if self._threaded:
            if self._thread is None:
                self._thread = threading.Thread(target=_fly_forever, args=(self._queue, self._lost), daemon=True)
                self._thread.start()
                weakref.finalize(self, _retire, self._queue, self._thread)
            self._queue.put(flight)

    def land(self) -> float:
        """Block until all flights have landed; raise the first error; return the seconds spent waiting."""
        started = time.perf_counter()
        flights, self._flights = self._flights, []
        if self._threaded:
            for flight in flights:
                flight.landed.wait()
        else:
            rounds = deque(flights)
            while rounds:
                _fly(rounds.popleft(), rounds.append, self._lost)
        for flight in flights:
            if flight.error:
                self._wreck += flights  # the backend may still write into the buffers of what it had not finished
                raise flight.error
        return time.perf_counter() - started


def _fly(flight: Flight[Any], requeue: Callable[[Flight[Any]], None], lost: list[PeerError]) -> None:
    """One turn. Once a worker is lost, every further wait would take a whole time-out: cancel instead."""
    if lost and not flight.landed.is_set():
        flight.cancel(lost[0])
    while not flight.landed.is_set():
        flight.advance()
        if not flight.ordered:
            break
    if isinstance(flight.error, PeerError) and not lost:
        lost.append(flight.error)
    if not flight.landed.is_set():
        requeue(flight)


@torch.no_grad()
def _fly_forever(flights: queue.SimpleQueue[Flight[Any] | None], lost: list[PeerError]) -> None:
    while (flight := flights.get()) is not None:
        _fly(flight, flights.put, lost)


def _retire(flights: queue.SimpleQueue[Flight[Any] | None], thread: threading.Thread) -> None:
    """End a pilot's thread before the interpreter ends: one that is inside torch by then would abort the process."""
    flights.put(None)
    if thread is not threading.current_thread():
        thread.join(timeout=5)


class GradientWatch:
    """Calls ``ready(bucket)`` when the last gradient of a bucket has landed, buckets always in their order.

    The order is the same on every worker, whatever order gradients land in. Hooks hold no reference to the owner.
    """

    def __init__(
        self, buckets: Sequence[Bucket], ready: Callable[[Bucket], None], twice: Callable[[str], None]
    ) -> None:
        self._buckets = buckets
        self._ready = weakref.WeakMethod(ready)
        self._twice = weakref.WeakMethod(twice)
        self._where = {slot.param: (bucket, slot.name) for bucket in buckets for slot in bucket.slots}
        self.paused = False
        self.reset()
        watch = weakref.ref(self)

        def landed(param: Tensor) -> None:
            if (alive := watch()) is not None:
                alive._landed(param)

        self._handles = [param.register_post_accumulate_grad_hook(landed) for param in self._where]

    def reset(self) -> None:
        """Expect every gradient anew."""
        self._seen: set[Tensor] = set()
        self._missing = [len(bucket.slots) for bucket in self._buckets]
        self._next = 0

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _landed(self, param: Tensor) -> None:
        ready, twice = self._ready(), self._twice()
        if self.paused or ready is None or twice is None:
            return
        bucket, name = self._where[param]
        if param in self._seen:
            twice(name)
        self._seen.add(param)
        self._missing[bucket.index] -= 1
        while self._next < len(self._buckets) and self._missing[self._next] == 0:
            self._next += 1
            ready(self._buckets[self._next - 1])
