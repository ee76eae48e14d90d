"""A training loop that can end at any moment and go on as if it had not."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, NoneType, TracebackType
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from lioncub import checkpoint
from lioncub.checkpoint import disk
from lioncub.checkpoint.consensus import Consensus, comm_of
from lioncub.checkpoint.ownership import claim
from lioncub.errors import ConfigError, NoCheckpointError
from lioncub.optimizer import DistributedLion
from lioncub.transport.comm import Comm


def resume(
    directory: str | os.PathLike[str] | None,
    model: nn.Module,
    optimizer: Optimizer,
    *,
    every: int = 100,
    keep: int = 2,
    process_group: Any = None,
) -> Run:
    """Load the latest good checkpoint, save every so often and at the end; on SIGTERM save and end.

    Args:
        directory: where the checkpoints are, the same on every worker. None saves nothing.
        model: what is trained: parameters and buffers are saved.
        optimizer: its momenta are saved, those of each worker.
        every: steps from one checkpoint to the next. They are written while training goes on.
        keep: how many checkpoints stay.
        process_group: as the optimizer's.

    The folder belongs to this job alone until its last worker has ended: a job that comes while another one's workers
    still live waits up to 40 seconds for their end, and raises :class:`CheckpointInUseError` if they stay.

    Random states are saved too, and ``run.extra``. A loop that draws its data from torch's generator, or notes in
    ``run.extra`` where it is, goes on exactly where the last checkpoint was made: bit for bit as if never interrupted.

    SIGTERM, or Ctrl-C once, on any worker makes all workers finish the step they are in, save, and end with
    :class:`SystemExit`: code 143 (130 after Ctrl-C), so that a launcher does not mistake it for the end of training. A
    second Ctrl-C interrupts at once.

    Example (under ``torchrun --max-restarts 10``)::

        with lioncub.resume("checkpoints", model, optimizer) as run:
            for step in run.steps(10_000):
                loss = ...
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    """
    if every < 1 or keep < 1:
        raise ConfigError(f"every={every}, keep={keep}: at least 1 of both")
    return Run(directory, model, optimizer, every, keep, process_group)


class Run:
    """A training run from its latest checkpoint on. Made by :func:`resume`."""

    def __init__(
        self,
        directory: str | os.PathLike[str] | None,
        model: nn.Module,
        optimizer: Optimizer,
        every: int,
        keep: int,
        process_group: Any,
    ) -> None:
        self._directory, self._model, self._optimizer = directory, model, optimizer
        self._every, self._keep, self._process_group = every, keep, process_group
        self._saving: checkpoint.Saving | None = None
        self._signals = StopSignals(_teller(optimizer, process_group))
        self.step = 0
        """How many steps are done."""
        self.extra: dict[str, Any] = {}
        """This worker's own notes, saved and restored with the rest: anything that JSON can hold."""
        self.loaded: checkpoint.Loaded | None = None
        """The checkpoint that this run goes on from."""

    def __enter__(self) -> Run:
        if self._directory is not None:
            workers = Consensus(comm_of(self._optimizer, self._process_group))
            for folder in claim(Path(self._directory).absolute(), workers):
                disk.sync_folder(folder)
            try:
                self.loaded = checkpoint.load(
                    self._directory, self._model, self._optimizer, process_group=self._process_group
                )
            except NoCheckpointError:
                pass
            else:
                self.step, self.extra = self.loaded.step, _notes(self.loaded.extra)
        self._signals.catch()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._signals.release()
        if problem is None:
            if self._saving is not None:
                self._saving.wait()
            if self._directory is not None:
                checkpoint.release(self._directory)
        elif self._signals.caught == signal.SIGTERM and not isinstance(problem, SystemExit):
            # It was asked to end and cannot save any more. A save in the background would hold it up: it waits for
            # the part of a worker that may be gone.
            traceback.print_exception(problem)
            sys.stdout.flush()
            signal.raise_signal(signal.SIGTERM)

    def steps(self, total: int) -> Iterator[int]:
        """The numbers of the steps that are still to be done, up to ``total``; the first step's is 0.

        A step ends when the next one is asked for. Leaving the loop early saves nothing.
        """
        for step in range(self.step, total):
            yield step
            self.step = step + 1
            if self.step == total:
                self._save(asynchronous=False)
            elif self._stopping():
                self._save(asynchronous=False)
                raise SystemExit(128 + (self._signals.caught or signal.SIGTERM))
            elif self.step % self._every == 0:
                self._save(asynchronous=True)

    def _stopping(self) -> bool:
        """The same on every worker: what was asked for travelled with the step."""
        if isinstance(self._optimizer, DistributedLion):
            return bool(self._optimizer.stats.stopping)
        return self._signals.caught is not None

    def _save(self, *, asynchronous: bool) -> None:
        if self._directory is None:
            return
        self._saving = checkpoint.save(
            self._directory,
            self._model,
            self._optimizer,
            self.step,
            self.extra,
            keep=self._keep,
            asynchronous=asynchronous,
            process_group=self._process_group,
        )


def _notes(extra: Any) -> dict[str, Any]:
    if not isinstance(extra, dict | NoneType):
        raise ConfigError(
            f"the checkpoint's extra is a {type(extra).__name__}, so that resume() did not write it: use "
            "lioncub.checkpoint.load(), or another folder"
        )
    return dict(extra or {})


class StopSignals:
    """SIGTERM and the first SIGINT, noted instead of obeyed.

    SIGTERM may come twice, from a scheduler and from torchrun. A second Ctrl-C is meant.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        self.caught: signal.Signals | None = None
        self._tell = tell
        self._before: dict[signal.Signals, Any] = {}

    def catch(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise ConfigError("resume() catches signals, which Python allows in the main thread only: use it there")
        self._before = {number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)}

    def release(self) -> None:
        while self._before:
            signal.signal(*self._before.popitem())

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.caught = signal.Signals(number)
        self._tell()
        if number == signal.SIGINT:
            signal.signal(number, self._before[signal.SIGINT])


def _teller(optimizer: Optimizer, process_group: Any) -> Callable[[], None]:
    """How a worker that caught a signal tells the others: in the headers that travel anyway."""
    if isinstance(optimizer, DistributedLion):
        return optimizer.ask_to_stop
    if Comm.of(process_group, torch.device("cpu")).size > 1:
        raise ConfigError(
            f"{type(optimizer).__name__} on several workers cannot tell the others of a signal: use DistributedLion"
        )
    return lambda: None
