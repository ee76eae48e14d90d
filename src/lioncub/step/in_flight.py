"""Exchanges in flight."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Generator
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import torch

from lioncub.errors import PeerError
from lioncub.transport.comm import Pending
from lioncub.transport.sockets import close_all

T = TypeVar("T")


class Flight(Generic[T]):
    """One exchange on its way. Ordered ones use the backend's collectives, which all workers launch in one order."""

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
                self._pending = Pending()  # what was waited for holds on to its buffers
                self._pending = next(self._exchange)
        except StopIteration as finished:
            self._result = finished.value
            self.landed.set()
        except Exception as problem:
            self.error = problem
            self.landed.set()

    def complete(self) -> None:
        while not self.landed.is_set():
            self.advance()


class Pilot:
    """Brings flights to their end.

    Those that send point-to-point leave at once, each with a thread of its own: none waits for another, so no order of
    arrival can block them. The threads stay for the next step. Ordered flights run inside :meth:`land`, on the caller's
    thread, where the backend's collectives keep the order of the caller's own.
    """

    def __init__(self, *, threaded: bool) -> None:
        self._flights: list[Flight[Any]] = []
        self._wreck: list[Flight[Any]] = []
        self._crew = Crew() if threaded else None

    def launch(self, flight: Flight[Any]) -> None:
        self._flights.append(flight)
        if flight.ordered:
            return
        flight.advance()  # encode and post now: the wire is busy from here on
        if self._crew:
            in_the_air = sum(not (other.ordered or other.landed.is_set()) for other in self._flights)
            self._crew.take_on(flight, max(in_the_air, 1))

    def land(self) -> float:
        """Block until all flights have landed; raise the error that explains most; return the seconds it took."""
        started = time.perf_counter()
        flights, self._flights = self._flights, []
        for flight in flights:
            if self._crew and not flight.ordered:
                flight.landed.wait()
            elif not any(isinstance(other.error, PeerError) for other in flights):  # else it could only time out again
                flight.complete()
        errors = [flight.error for flight in flights if flight.error is not None]
        if errors:
            self._wreck += flights  # the backend may still write into the buffers of what it had not finished
            raise min(errors, key=_noticed_at)
        return time.perf_counter() - started


def _noticed_at(error: Exception) -> float:
    """Lost peers explain all other errors, and the first loss the later ones."""
    return error.noticed if isinstance(error, PeerError) else float("inf")


class Crew:
    """Threads that wait for flights, and end when nobody can send them any more."""

    def __init__(self) -> None:
        self._flights: SimpleQueue[Flight[Any] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        weakref.finalize(self, _dismiss, self._flights, self._threads).atexit = False

    def take_on(self, flight: Flight[Any], in_the_air: int) -> None:
        """Complete a flight; with it, so many are in the air, and each needs a thread."""
        _in_the_air.add(flight)
        while len(self._threads) < in_the_air:
            self._threads.append(threading.Thread(target=_serve, args=(self._flights,), daemon=True))
            self._threads[-1].start()
        self._flights.put(flight)


@torch.no_grad()
def _serve(flights: SimpleQueue[Flight[Any] | None]) -> None:
    while (flight := flights.get()) is not None:
        flight.complete()
        del flight  # while this thread waits for the next one it must not keep this one's buffers


def _dismiss(flights: SimpleQueue[Flight[Any] | None], threads: list[threading.Thread]) -> None:
    for _ in threads:
        flights.put(None)


_in_the_air: weakref.WeakSet[Flight[Any]] = weakref.WeakSet()


@atexit.register
def _let_land(patience_seconds: float = 5) -> None:
    """Let flights land before the interpreter ends: a thread that returns from torch after that aborts the process."""
    _await_landings(patience_seconds)
    close_all()  # whoever still waits for peers
    _await_landings(patience_seconds)


def _await_landings(patience_seconds: float) -> None:
    deadline = time.monotonic() + patience_seconds
    for flight in list(_in_the_air):
        flight.landed.wait(timeout=max(deadline - time.monotonic(), 0))
