"""One run: n virtual workers, from the first step to the last."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from statistics import fmean
from time import perf_counter

import torch

from lioncub.tools.reporting.machine import machine
from lioncub.tools.reporting.memory import peak_bytes, reset_peak
from lioncub.tools.study.errors import DivergedError
from lioncub.tools.study.gradients import Replica
from lioncub.tools.study.lions import VirtualLion
from lioncub.tools.study.methods import METHODS
from lioncub.tools.study.records import Run, Spec
from lioncub.tools.study.tasks import TASKS, Batches, judged

POINTS = 50
JUDGEMENTS = 5
"""How often the held-out loss is taken, the end included."""


def train(spec: Spec, *, command: str = "", device: str = "cpu", on_step: Callable[[], object] = lambda: None) -> Run:
    """Train and judge. A run whose loss or gradients do not stay finite ends early and says so: its loss is None."""
    started = perf_counter()
    reset_peak()
    task, entry = TASKS[spec.task], METHODS[spec.method]
    job = task.load()
    model = job.model(spec.seed)
    replica = Replica(model, torch.device(device))
    method = entry.build(list(model.named_parameters()), spec)
    batches = Batches(task, spec.workers, spec.seed, skew=spec.skew)
    traffic, losses, held_out, agreements = Traffic(), [], [], Means()
    try:
        for step in range(spec.steps):
            own = [batches.of(worker) for worker in range(spec.workers)]
            method.begin(task.schedule(step, spec.lr, spec.steps, spec.rise), last=step + 1 == spec.steps)
            worker_losses = []
            for worker, (loss, gradients) in enumerate(replica.gradients(job, own, method.weights)):
                if not math.isfinite(loss):
                    raise DivergedError(f"step {step}: the loss of worker {worker} is {loss}")
                worker_losses.append(loss)
                traffic.up += method.send(worker, gradients) / spec.workers
            traffic.down += method.move(method.lr)
            replica.follow()
            losses.append(fmean(worker_losses))
            if isinstance(method, VirtualLion):
                agreements.add(method.agreements)
            on_step()
            if (step + 1) * JUDGEMENTS % spec.steps < JUDGEMENTS:
                held_out.append((step + 1, *judged(task, replica.model, part=1.0 if step + 1 == spec.steps else 0.25)))
        finite = all(math.isfinite(loss) for _, loss, _ in held_out)
    except DivergedError:
        finite = False
    steps = max(len(losses), 1)
    return Run(
        spec=spec,
        label=entry.label,
        parameters=method.numel,
        data=job.learned_from,
        train_losses=tuple(averaged(losses, POINTS)),
        held_out=tuple((step, loss) for step, loss, _ in held_out if math.isfinite(loss)),
        loss=held_out[-1][1] if finite else None,
        quality=held_out[-1][2] if finite else None,
        bits_up=8 * traffic.up / method.numel / steps,
        bits_down=8 * traffic.down / method.numel / steps,
        agreement=agreements.values(),
        divergence=method.divergences() if isinstance(method, VirtualLion) else {},
        seconds=perf_counter() - started,
        peak_bytes=peak_bytes(),
        machine=machine(),
        command=command,
    )


class Traffic:
    """Bytes of one worker since the start."""

    up = 0.0
    down = 0.0


class Means:
    """Means of named figures."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.count = 0

    def add(self, figures: dict[str, float]) -> None:
        if figures:
            self.count += 1
            for name, value in figures.items():
                self.sums[name] = self.sums.get(name, 0.0) + value

    def values(self) -> dict[str, float]:
        return {name: total / self.count for name, total in self.sums.items()}


def averaged(values: list[float], points: int) -> list[float]:
    """Means over so many stretches of equal length, or the values where there are no more."""
    if len(values) <= points:
        return values
    edges = [len(values) * k // points for k in range(points + 1)]
    return [fmean(values[first:last]) for first, last in pairwise(edges)]
