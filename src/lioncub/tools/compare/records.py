"""The records of a comparison: one JSON object a line for each cell."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from lioncub.records import LIMIT, Amount, Count, Plain, from_line, to_line
from lioncub.tools.reporting.lines import read_lines

KIND = "cell"
Real = Annotated[float, Meta(ge=0, lt=1e39)]
"""A loss, or what a training was given. No float32 is as large as the limit: losses that diverge are still numbers."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """The training after some step. Step 0 is the untrained model. The clock stands still in validation."""

    step: Count
    seconds: Amount  # of training since the start
    bytes_sent: Count  # by host 0 since the start, from the counter of its interface
    train_loss: Real | None = None  # host 0's batch
    validation_loss: Real | None = None  # all hosts' share of the same examples


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One method on one link with so many hosts, and all that its figures depend on."""

    method: str  # "ddp-lion", "vote", "cub-4", "compute", …
    label: str  # as people read it
    job: str  # "gpt-10m", "vit-1m", "resnet-1m", …
    unit: str  # of the losses: "nats per byte", "nats per image"
    hosts: Annotated[int, Meta(ge=1, lt=int(LIMIT))]
    rates: tuple[str, ...]  # of each host's link, "100mbit"; empty where nothing was shaped
    examples: Count  # tokens or images per host and step
    examples_unit: str  # "tokens", "images"
    parameters: Count
    seed: Annotated[int, Meta(ge=0)]
    lr: Real
    weight_decay: Real
    data: str = ""  # what it learned from: "enwik8", "stdlib", "cifar10"

    steps: Count = 0  # that were timed
    step_seconds: Amount = 0.0  # median
    step_seconds_quartiles: tuple[Amount, Amount] = (0.0, 0.0)
    update_seconds: Amount | None = None  # of those: moving the parameters
    bytes_sent: Amount = 0.0  # per host and step: mean over the timed steps on its interface, of the host with most
    bytes_received: Amount = 0.0
    bytes_planned: Amount = 0.0  # the same as the method itself counts it; 0 where it does not
    points: tuple[Point, ...] = ()
    error: str = ""  # why there are no figures

    settings: Mapping[str, Plain] = field(default_factory=dict)  # of the whole comparison: the key of resuming
    machine: Mapping[str, Plain] = field(default_factory=dict)  # processor, cores, versions, commit, date
    command: str = ""
    run: str = ""  # the invocation of `lioncub compare`: figures are held against those of the same run only

    @property
    def link(self) -> str:
        """``1gbit``, ``1gbit, host 2 100mbit`` or ``unshaped``."""
        if not self.rates:
            return "unshaped"
        usual = max(dict.fromkeys(self.rates), key=self.rates.count)
        odd = [f"host {host} {rate}" for host, rate in enumerate(self.rates) if rate != usual]
        return ", ".join([usual, *odd])

    @property
    def place(self) -> tuple[str, str, int, int]:
        """The link and the hosts of the training."""
        return (self.job, self.link, self.hosts, self.examples)

    @property
    def group(self) -> tuple[object, ...]:
        """The key of cells whose figures can be compared: the place, all settings, and the run."""
        return (*self.place, self.seed, json.dumps(self.settings, sort_keys=True), self.run)

    @property
    def key(self) -> tuple[object, ...]:
        return (self.method, *self.group)

    @property
    def replaces(self) -> tuple[object, ...]:
        """The key that a cell shares with the same cell of an earlier run."""
        return self.key[:-1]

    @property
    def final_loss(self) -> float | None:
        """The last validation loss."""
        return next((p.validation_loss for p in reversed(self.points) if p.validation_loss is not None), None)

    def first_at(self, loss: float) -> Point | None:
        """The first point with a validation loss of ``loss`` or less."""
        return next((p for p in self.points if p.validation_loss is not None and p.validation_loss <= loss), None)

    def to_json(self) -> str:
        return to_line(KIND, self)


def parse_cell(line: str) -> Cell:
    """A cell from its line; ValueError if the line is something else."""
    cell = from_line(line, {KIND: Cell}, "a record of a comparison")
    if not cell.error and not cell.parameters:
        raise ValueError(f"not a record of a comparison: a model without parameters: {line.strip()[:80]!r}")
    return cell


def read_cells(path: Path) -> list[Cell]:
    """The cells of a records file; a line cut short by a crash is left out, and a failure that a later run made good.

    ValueError, which names the line, if one is something else.
    """
    cells = {cell.key: cell for cell in read_lines(path, parse_cell)}
    succeeded = {cell.replaces for cell in cells.values() if not cell.error}
    return [cell for cell in cells.values() if not cell.error or cell.replaces not in succeeded]
