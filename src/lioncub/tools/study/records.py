"""What one training run of a study leaves behind: one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lioncub.records import Plain, from_line, to_line
from lioncub.tools.reporting.lines import read_lines

KIND = "run"


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What makes a run: two runs with the same specification are the same run."""

    task: str
    method: str
    workers: int
    seed: int
    lr: float
    weight_decay: float
    steps: int
    examples: int
    """Per worker and step."""
    skew: float | None = None
    """Of the classes that workers see; None: all see the same mix."""
    rise: float = 0.05
    """The part of the steps in which the learning rate rises."""
    memory: str = ""
    """How long averages remember: a β2, or "growing-c"; empty: what the method comes with."""

    @property
    def num_examples(self) -> int:
        """That all workers see in all steps."""
        return self.steps * self.workers * self.examples

    @property
    def key(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run's figures, and all that they depend on."""

    spec: Spec
    label: str
    """The method, as people read it."""
    parameters: int
    data: str
    """What it learned from: "enwik8", "cifar10", "stdlib (Python 3.11.7, 1c2d3e4f)"."""
    train_losses: tuple[float, ...] = ()
    """Nats, the mean over workers and over each fiftieth of the steps."""
    held_out: tuple[tuple[int, float], ...] = ()
    """(after how many steps, nats)."""
    loss: float | None = None
    """Held out, at the end, in nats. None: the run did not stay finite."""
    quality: float | None = None
    """In the task's unit."""
    bits_up: float = 0.0
    """Per parameter and step, from the encoded bytes; the mean over workers and steps."""
    bits_down: float = 0.0
    agreement: dict[str, float] = field(default_factory=dict)
    """By tensor: how often the outcome had the exact sign; the mean over the steps that were looked at."""
    divergence: dict[str, float] = field(default_factory=dict)
    """By tensor: how far the workers' momenta are apart at the end."""
    seconds: float = 0.0
    peak_bytes: int | None = None
    """The most memory that the process had in use meanwhile; None where the system does not say."""
    machine: Mapping[str, Plain] = field(default_factory=dict)
    command: str = ""

    @property
    def end_loss(self) -> float:
        """The training loss over the last tenth: what learning rates are chosen by, so that no test data is."""
        if self.loss is None or not self.train_losses:
            return float("inf")
        last = self.train_losses[-max(len(self.train_losses) // 10, 1) :]
        return sum(last) / len(last)

    def to_json(self) -> str:
        return to_line(KIND, self)


def parse_run(line: str) -> Run:
    """A run from its line; ValueError if the line is something else."""
    return from_line(line, {KIND: Run}, "a record of a study")


def read_runs(paths: Iterable[Path]) -> list[Run]:
    """The runs of some files, the last one where a run was made again; a line cut short by a crash is left out.

    ValueError, which names the line, if one is something else.
    """
    return list({run.spec.key: run for path in paths for run in read_lines(path, parse_run)}.values())
