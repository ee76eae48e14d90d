"""Real worker processes for tests: started once, handed functions to run together on process groups of any size."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch", "torch.distributed", "lioncub"])


@dataclass
class Failure:
    """An exception that a worker's function raised: its type's name, its text, its own ranks if it has any."""

    kind: str
    text: str
    ranks: tuple[int, ...]
    trace: str


def _serve(rank: int, size: int, store: str, timeout_seconds: float, sizes: tuple[int, ...], pipe: Connection) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    patient = timedelta(seconds=max(timeout_seconds, 60))  # starting up takes its time on a busy machine
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size, timeout=patient)
    groups = {n: dist.new_group(range(n), timeout=timedelta(seconds=timeout_seconds)) for n in sizes}
    while True:
        try:
            task = pipe.recv()
        except (EOFError, OSError, KeyboardInterrupt):
            return
        function, num_workers, args = task
        group = groups.get(num_workers, dist.group.WORLD)
        try:
            result = function(rank, group, *args)
        except BaseException as problem:
            ranks = tuple(getattr(problem, "ranks", ()))
            result = Failure(type(problem).__name__, str(problem), ranks, traceback.format_exc())
        with suppress(OSError):  # the test may have ended
            pipe.send(result)


class Cluster:
    """``size`` processes. ``sizes`` are the smaller process groups that tests will ask for."""

    def __init__(self, size: int, sizes: tuple[int, ...] = (), timeout_seconds: float = 120) -> None:
        self._folder = tempfile.TemporaryDirectory()
        store = str(Path(self._folder.name) / "store")
        self.pipes: list[Connection] = []
        self.processes = []
        for rank in range(size):
            ours, theirs = CONTEXT.Pipe()
            arguments = (rank, size, store, timeout_seconds, sizes, theirs)
            process = CONTEXT.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def run(self, num_workers: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        """``function(rank, group, *args)`` on the first workers; its results. Any failure fails the test."""
        results = self.attempt(num_workers, function, *args)
        for rank, result in enumerate(results):
            if isinstance(result, Failure):
                raise AssertionError(f"worker {rank} failed:\n{result.trace}")
        return results

    def attempt(self, num_workers: int, function: Callable[..., Any], *args: Any, patience: float = 100) -> list[Any]:
        """As :meth:`run`, but failures are results, and workers that die are None."""
        pipes = self.pipes[:num_workers]
        for pipe in pipes:
            pipe.send((function, num_workers, args))
        results: dict[Connection, Any] = {}
        while len(results) < len(pipes):
            answering = wait([pipe for pipe in pipes if pipe not in results], timeout=patience)
            if not answering:
                raise AssertionError(f"workers {[i for i, p in enumerate(pipes) if p not in results]} hang")
            for pipe in set(pipes) & set(answering):
                try:
                    results[pipe] = pipe.recv()
                except EOFError:
                    results[pipe] = None
        return [results[pipe] for pipe in pipes]

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            if "coverage" in sys.modules:
                process.join(5)  # what is killed says nothing of what it ran
            if process.pid is not None and process.is_alive():
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            process.join()
        self._folder.cleanup()
