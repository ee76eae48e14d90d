"""Exchanges in flight."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Generator
from queue import SimpleQueue
from typing import Any, Generic, TypeAlias, TypeVar

import torch

from lioncub.errors import PeerError
from lioncub.transport.comm import Pending
from lioncub.transport.sockets import close_all

T = TypeVar("T")


class InFlight(Generic[T]):
    """One exchange in flight. Ordered ones use the backend's collectives, which all workers launch in one order."""

    def __init__(self, steps: Generator[Pending, None, T], *, ordered: bool) -> None:
        self._steps = steps
        self._pending = Pending()
        self.ordered = ordered
        self.ended = threading.Event()
        self.error: Exception | None = None
        self._result: T | None = None

    @property
    def result(self) -> T:
        assert self._result is not None, "read after its end only"
        return self._result

    def advance(self) -> None:
        """Wait for the messages in flight, then run the exchange up to its next launch or its end."""
        try:
            try:
                self._pending.wait()
            except PeerError as problem:
                self._pending = self._steps.throw(problem)
            else:
                self._pending = Pending()  # what was waited for holds on to its buffers
                self._pending = next(self._steps)
        except StopIteration as finished:
            self._result = finished.value
            self.ended.set()
        except Exception as problem:
            self.error = problem
            self.ended.set()

    def complete(self) -> None:
        while not self.ended.is_set():
            self.advance()


class Exchanges:
    """Launches exchanges and waits for their end.

    Those that send point-to-point leave at once, each with a thread of its own: none waits for another, so no order of
    arrival can block them. The threads stay for the next step. Ordered exchanges run inside :meth:`wait`, on the
    caller's thread, where the backend's collectives keep the order of the caller's own.
    """

    def __init__(self, *, threaded: bool) -> None:
        self._launched: list[InFlight[Any]] = []
        self._failed: list[InFlight[Any]] = []
        self._threads = Threads() if threaded else None

    def launch(self, exchange: InFlight[Any]) -> None:
        self._launched.append(exchange)
        if exchange.ordered:
            return
        exchange.advance()  # post now: the wire is busy from here on
        if self._threads:
            unfinished = sum(not (other.ordered or other.ended.is_set()) for other in self._launched)
            self._threads.complete(exchange, max(unfinished, 1))

    def wait(self) -> float:
        """Block until all have ended; raise the error that explains most; return the seconds it took."""
        started = time.perf_counter()
        launched, self._launched = self._launched, []
        for exchange in launched:
            if self._threads and not exchange.ordered:
                exchange.ended.wait()
            elif not any(isinstance(other.error, PeerError) for other in launched):  # else it could only time out again
                exchange.complete()
        errors = [exchange.error for exchange in launched if exchange.error is not None]
        if errors:
            self._failed += launched  # the backend may still write into the buffers of what it had not finished
            raise min(errors, key=_noticed_at)
        return time.perf_counter() - started


def _noticed_at(error: Exception) -> float:
    """Lost peers explain all other errors, and the first loss the later ones."""
    return error.noticed if isinstance(error, PeerError) else float("inf")


class Threads:
    """Threads that complete exchanges, and end when nobody can give them any more."""

    def __init__(self) -> None:
        self._queue: Queue = SimpleQueue()
        self._threads: list[threading.Thread] = []
        weakref.finalize(self, _end, self._queue, self._threads).atexit = False

    def complete(self, exchange: InFlight[Any], unfinished: int) -> None:
        """Complete one more; ``unfinished``: how many there are with it, each of which needs a thread."""
        _unfinished.add(exchange)
        while len(self._threads) < unfinished:
            self._threads.append(threading.Thread(target=_serve, args=(self._queue,), daemon=True))
            self._threads[-1].start()
        self._queue.put(exchange)


Queue: TypeAlias = "SimpleQueue[InFlight[Any] | None]"


@torch.no_grad()
def _serve(queue: Queue) -> None:
    while (exchange := queue.get()) is not None:
        exchange.complete()
        del exchange  # while this thread waits for the next one it must not keep this one's buffers


def _end(queue: Queue, threads: list[threading.Thread]) -> None:
    for _ in threads:
        queue.put(None)


_unfinished: weakref.WeakSet[InFlight[Any]] = weakref.WeakSet()


@atexit.register
def _complete_all(patience_seconds: float = 5) -> None:
    """End all exchanges before the interpreter ends: a thread that returns from torch after that aborts the process."""
    _await_ends(patience_seconds)
    close_all()  # whoever still waits for peers
    _await_ends(patience_seconds)


def _await_ends(patience_seconds: float) -> None:
    deadline = time.monotonic() + patience_seconds
    for exchange in list(_unfinished):
        exchange.ended.wait(timeout=max(deadline - time.monotonic(), 0))
