"""One host's process: ``python -m lioncub.tools.compare.worker CONFIG``, with RANK and the like set by the lab.

All methods train one after another in the same processes, from the same weights, on the same batches. Host 0 keeps a
journal: a line for each step, and one for each method that is done.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any, TextIO

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from lioncub import DistributedLion
from lioncub.momentum.memory import usual_warmup
from lioncub.records import from_json
from lioncub.tools.compare.builders import BUILDERS, Hyperparameters
from lioncub.tools.compare.config import WorkerConfig
from lioncub.tools.compare.errors import CompareError
from lioncub.tools.compare.methods import COMPUTE_ALONE
from lioncub.tools.compare.records import Point
from lioncub.tools.jobs import Job, load_job
from lioncub.tools.lab.counters import Counters, read_counters

GROUP_TIMEOUT = timedelta(seconds=300)

USUAL_RISE = usual_warmup(beta2=0.99, memory="growing")


class LinkCounter:
    """The bytes that this host's interface has sent and received; None where hosts share an interface."""

    def __init__(self, interface: str) -> None:
        self.interface = interface

    def read(self) -> Counters:
        return read_counters(self.interface) if self.interface else Counters()


class Journal:
    """A file of JSON lines that the parent process follows. Only host 0 writes one."""

    def __init__(self, file: TextIO | None) -> None:
        self.file = file

    def write(self, kind: str, **values: Any) -> None:
        if self.file is not None:
            self.file.write(json.dumps({"kind": kind} | values, allow_nan=False) + "\n")
            self.file.flush()


class Training:
    """The training of one method on one host."""

    def __init__(self, job: Job, method: str, config: WorkerConfig, journal: Journal) -> None:
        given = config.settings
        self.job, self.method, self.config, self.journal = job, method, config, journal
        self.model = job.model(given["seed"])
        hyperparameters = Hyperparameters(
            lr=given["lr"] or job.lr,
            adamw_lr=job.adamw_lr,
            weight_decay=job.weight_decay,
            rise=min(max(given["steps"] // 10, 1), USUAL_RISE),
        )
        self.module, self.optimizer = BUILDERS[method](self.model, hyperparameters)
        self.batches = torch.Generator().manual_seed(given["seed"] * 65_537 + dist.get_rank() + 1)
        self.link = LinkCounter(config.interface)
        self.seconds: list[float] = []
        self.updates: list[float] = []
        self.traffic: list[Counters] = []
        self.planned: list[int] = []
        self.mark = Counters()
        self.points: list[Point] = []

    def run(self) -> dict[str, Any]:
        """Warm up, decide on the number of steps, train; what host 0 writes down about it."""
        given = self.config.settings
        self.note(None, self.validate())
        self.mark = self.link.read()
        for _ in range(given["warmup"]):
            self.note(self.step())
        steps = self.agree(self.steps_that_fit(given))
        every = max(1, -(-steps // given["validations"])) if given["validations"] else steps + 1
        for done in range(1, steps + 1):
            loss = self.step()
            due = done % every == 0 or (done == steps and given["validations"])
            self.note(loss, self.validate() if due else None, total=steps + given["warmup"])
        return self.figures(given["warmup"])

    def step(self) -> float:
        """The clock runs from a batch to the end of its optimizer step.

        Bytes are counted from one step's end to the next, for some leave the queues after their step. Hosts that do
        not communicate start together all the same: else those that lag would compute with the cores for themselves.
        """
        if self.method == COMPUTE_ALONE:
            dist.barrier()
            self.mark = self.link.read()
        start = perf_counter()
        inputs, targets = self.job.batch(self.batches, self.config.examples)
        loss = self.job.loss(self.module, inputs, targets)
        self.optimizer.zero_grad()
        loss.backward()
        updated = update(self.optimizer)
        self.seconds.append(perf_counter() - start)
        self.updates.append(updated)
        mark = self.link.read()
        self.traffic.append(mark.since(self.mark))
        self.mark = mark
        self.planned.append(self.optimizer.stats.bytes_sent if isinstance(self.optimizer, DistributedLion) else 0)
        if not math.isfinite(loss.item()):
            raise CompareError(f"{self.method}: the loss became {loss.item()} at step {len(self.seconds)}")
        return float(loss.item())

    def steps_that_fit(self, given: dict[str, Any]) -> int:
        """As long as the warm-up's last: some methods begin with steps of another kind."""
        fitting = max(int(given["least_steps"]), int(given["seconds"] / self.seconds[-1]))
        return min(int(given["steps"]), fitting)

    def agree(self, value: int) -> int:
        """On what host 0 says."""
        agreed = torch.tensor([value])
        dist.broadcast(agreed, src=0)
        return int(agreed.item())

    def note(self, train_loss: float | None, validation_loss: float | None = None, total: int = 0) -> None:
        sent = sum(counters.sent_bytes for counters in self.traffic)
        self.points.append(
            Point(
                step=len(self.seconds),
                seconds=sum(self.seconds),
                bytes_sent=sent,
                train_loss=train_loss,
                validation_loss=validation_loss,
            )
        )
        self.journal.write("step", **asdict(self.points[-1]), total=total)

    @torch.no_grad()
    def validate(self) -> float | None:
        """Mean loss over the same examples for all, each host taking its share. Replicas that do not communicate have
        no loss in common."""
        if not self.config.settings["validations"] or self.method == COMPUTE_ALONE:
            return None
        examples = self.config.settings["validation_examples"]
        inputs, targets = self.job.validation(examples, batch=self.config.examples)
        rank, size = dist.get_rank(), dist.get_world_size()
        inputs, targets = inputs[rank::size], targets[rank::size]
        total = torch.tensor([self.job.loss(self.model, inputs, targets).item() * len(inputs), len(inputs)])
        dist.all_reduce(total)
        self.mark = self.link.read()
        return (total[0] / total[1]).item()

    def figures(self, warmup: int) -> dict[str, Any]:
        """Medians (bytes: means) over the timed steps; of the slowest host, for a step is as slow as that."""
        seconds, updates, traffic = self.seconds[warmup:], self.updates[warmup:], self.traffic[warmup:]
        lower, _, upper = quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else seconds * 3
        figures = {
            "step_seconds": median(seconds),
            "lower": lower,
            "upper": upper,
            "update_seconds": median(updates),
            "bytes_sent": sum(each.sent_bytes for each in traffic) / len(traffic),
            "bytes_received": sum(each.received_bytes for each in traffic) / len(traffic),
            "bytes_planned": sum(self.planned[warmup:]) / len(traffic),
        }
        largest = largest_of(list(figures.values()))
        return dict(zip(figures, largest, strict=True)) | {
            "steps": len(seconds),
            "parameters": sum(param.numel() for param in self.model.parameters()),
            "lr": self.optimizer.param_groups[0]["lr"],
            "weight_decay": self.optimizer.param_groups[0]["weight_decay"],
            "points": [asdict(point) for point in self.points],
        }


def update(optimizer: Optimizer) -> float:
    """Take a step; the seconds that moving the parameters took, without the exchange."""
    if isinstance(optimizer, DistributedLion):
        optimizer.exchange()
    start = perf_counter()
    finish: Callable[[], object] = optimizer.apply if isinstance(optimizer, DistributedLion) else optimizer.step
    finish()
    return perf_counter() - start


def largest_of(figures: list[float]) -> list[float]:
    """Over all hosts."""
    found: Tensor = torch.tensor(figures, dtype=torch.float64)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    values: list[float] = found.tolist()
    return values


def main() -> None:
    config = from_json(Path(sys.argv[1]).read_bytes(), WorkerConfig)
    job = load_job(config.settings["job"], text=config.settings["data"])
    dist.init_process_group("gloo", timeout=GROUP_TIMEOUT)
    file = open(config.journal, "a", encoding="utf-8") if dist.get_rank() == 0 else None  # noqa: SIM115
    try:
        with file or nullcontext():
            journal = Journal(file)
            for method in config.methods:
                journal.write("begin", method=method)
                dist.barrier()
                figures = Training(job, method, config, journal).run()
                about = {"data": job.data, "unit": job.unit, "examples_unit": job.examples_unit}
                journal.write("end", method=method, **about, **figures)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
