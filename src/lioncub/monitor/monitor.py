"""The monitor of a training loop, and the sinks to which it sends events."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path
from types import TracebackType

import torch.distributed as dist
from torch.optim import Optimizer

from lioncub.errors import ConfigError, QuorumError, ReplicasDifferError
from lioncub.monitor.events import End, Event, Finding, Start
from lioncub.monitor.findings import LossWatch, WaitWatch, replicas_differ
from lioncub.monitor.records import Records
from lioncub.monitor.sink import Sink
from lioncub.monitor.window import Window
from lioncub.stats import Stats

SECONDS_PER_READING = 2.0
"""A reading is taken after this time even if it has fewer than ``every`` steps."""

SINKS = "lioncub.sinks"
"""The entry points under which packages register sinks."""


class Monitor:
    """Time, bytes, votes and loss of a running job, on a dashboard, in TensorBoard, in a file; and findings.

    Args:
        optimizer: any of torch's. Those of lioncub have ``stats``; of others, only time and loss are shown.
        dashboard: show worker 0's figures in the terminal (stderr), or a line now and then where that is none.
        tensorboard: a folder for TensorBoard.
        records: a file that gets a line of JSON for each event; ``lioncub live FILE`` follows it. It is appended to.
        every: steps per reading. Readings are means over their steps; none spans more than 2 seconds and a step.
        every_worker: worker n > 0 writes too, to ``tensorboard/worker-n`` and ``records`` with ``.worker-n`` before
            the suffix; otherwise only worker 0 does. Workers are numbered by the default process group.
        sinks: more places for events to go, on every worker: objects with ``take(event)`` and ``close()``.

    Arguments are checked at construction. After it a monitor never ends the training: a sink that fails is dropped with
    one warning.

    Example::

        with lioncub.live.Monitor(optimizer, dashboard=True, records="live.jsonl") as monitor:
            for batch in loader:
                ...
                optimizer.step()
                monitor.step(loss=loss.item())
    """

    def __init__(
        self,
        optimizer: Optimizer,
        *,
        dashboard: bool = False,
        tensorboard: str | Path | None = None,
        records: str | Path | None = None,
        every: int = 10,
        every_worker: bool = False,
        sinks: Sequence[Sink] = (),
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise ConfigError(f"a monitor watches a torch optimizer, not a {type(optimizer).__name__}")
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ConfigError(f"every must be a whole number of steps, at least 1, got {every!r}")
        self.findings: list[Finding] = []
        """All findings so far."""
        self._optimizer = optimizer
        self._every = every
        self._worker = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
        self._sinks = list(sinks)
        if self._worker == 0 or every_worker:
            self._sinks += _sinks(self._worker, dashboard=dashboard, tensorboard=tensorboard, records=records)
        self._loss_watch, self._wait_watch = LossWatch(), WaitWatch()
        self._window = Window()
        self._num_steps = 0
        self._stats = self._current_stats()
        self._noted: BaseException | None = None
        self._tell(Start(time=time.time(), worker=self._worker, optimizer=_describe(optimizer)))
        self._last = time.perf_counter()

    def step(self, loss: float | None = None) -> None:
        """Record a step. Call it after every ``optimizer.step()``; the loss is this worker's."""
        now = time.perf_counter()
        seconds, self._last = now - self._last, now
        stats = self._current_stats()
        if stats is self._stats:
            stats = None  # nothing was applied
        else:
            self._stats = stats
        loss = None if loss is None else float(loss)
        step = self._num_steps if self._stats is None else self._stats.step
        self._num_steps += 1
        self._window.add(step, seconds, loss, stats)
        if loss is not None:
            self._find(self._loss_watch.see(step, loss))
        if stats is not None:
            self._find(self._wait_watch.see(step, seconds, stats))
        if len(self._window) >= self._every or self._window.seconds >= SECONDS_PER_READING:
            self._read()

    def note(self, error: BaseException) -> None:
        """Record an error of the optimizer. Errors that leave the ``with`` block are recorded by themselves."""
        if error is self._noted:
            return
        self._noted = error
        step = self._num_steps if self._stats is None else self._stats.step + 1
        if isinstance(error, ReplicasDifferError):
            self._find(replicas_differ(step, error))
        elif isinstance(error, QuorumError):
            self._find(self._loss_watch.not_finite(step, "too few workers have a finite gradient"))

    def close(self, error: str = "") -> None:
        """Tell the sinks that the job has ended, with ``error`` or well, and close them."""
        self._read()
        self._tell(End(time=time.time(), error=error))
        self._each(lambda sink: sink.close())
        self._sinks.clear()

    def __enter__(self) -> Monitor:
        self._last = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.note(error)
        self.close("" if error is None else f"{type(error).__name__}: {error}".removesuffix(": "))

    def _current_stats(self) -> Stats | None:
        stats = getattr(self._optimizer, "stats", None)
        return stats if isinstance(stats, Stats) else None

    def _read(self) -> None:
        if len(self._window):
            window, self._window = self._window, Window()
            self._tell(window.reading())

    def _find(self, finding: Finding | None) -> None:
        if finding is not None:
            self.findings.append(finding)
            self._tell(finding)

    def _tell(self, event: Event) -> None:
        self._each(lambda sink: sink.take(event))

    def _each(self, action: Callable[[Sink], None]) -> None:
        for sink in list(self._sinks):
            try:
                action(sink)
            except Exception as problem:
                self._sinks.remove(sink)
                with suppress(Exception):
                    sink.close()
                message = f"live: {type(sink).__name__} failed and is dropped, training goes on: {problem}"
                warnings.warn(message, RuntimeWarning, stacklevel=2)


def _sinks(worker: int, *, dashboard: bool, tensorboard: str | Path | None, records: str | Path | None) -> list[Sink]:
    """The sinks of this worker. A package is imported only where its sink is asked for."""
    sinks: list[Sink] = []
    if dashboard and worker == 0:
        sinks.append(_installed_sink("dashboard"))
    if tensorboard is not None:
        from lioncub.monitor.tensorboard import TensorBoard

        folder = Path(tensorboard)
        sinks.append(TensorBoard(folder / f"worker-{worker}" if worker else folder))
    if records is not None:
        path = Path(records)
        sinks.append(Records(path.with_suffix(f".worker-{worker}{path.suffix}") if worker else path))
    return sinks


def _installed_sink(name: str) -> Sink:
    """A sink that a package registers as an entry point: the library imports no package that draws."""
    found = [*entry_points(group=SINKS, name=name)]
    if not found:
        raise ConfigError(f"{name}=True: no package registers {name!r} under {SINKS!r}. Install lioncub again")
    sink: Sink = found[0].load()()
    return sink


def _describe(optimizer: Optimizer) -> str:
    params = sum(param.numel() for group in optimizer.param_groups for param in group["params"])
    codecs = sorted({repr(group["codec"]) for group in optimizer.param_groups if "codec" in group})
    return " · ".join([type(optimizer).__name__, *codecs, f"{params:,} parameters"])
