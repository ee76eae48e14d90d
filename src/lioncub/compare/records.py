"""What one cell of a comparison leaves behind: one JSON object a line."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from lioncub.compare.methods import COMPUTE_ALONE
from lioncub.publish.lines import finished_lines

KIND = "cell"


@dataclass(frozen=True, kw_only=True)
class Point:
    """The training after some step. Step 0 is the untrained model. The clock stands still in validation."""

    step: int
    seconds: float  # of training since the start
    bytes_sent: int  # by host 0 since the start, from the counter of its interface
    train_loss: float | None = None  # host 0's batch
    validation_loss: float | None = None  # all hosts' share of the same examples


@dataclass(frozen=True, kw_only=True)
class Split:
    """The median step's seconds, shared out."""

    compute: float  # forward and backward, as they take when nothing communicates
    wait: float  # the rest: sending, waiting, encoding, being slowed down by others that do
    update: float  # moving the parameters


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One method on one link with so many hosts, and all that its figures depend on."""

    method: str  # "ddp-lion", "vote", "cub-4", "compute", …
    label: str  # as people read it
    job: str  # "gpt-10m", "vit-1m", "resnet-1m", …
    unit: str  # of the losses: "nats per byte", "nats per image"
    hosts: int
    rates: tuple[str, ...]  # of each host's link, "100mbit"; empty where nothing was shaped
    examples: int  # tokens or images per host and step
    examples_unit: str  # "tokens", "images"
    parameters: int
    seed: int
    lr: float
    weight_decay: float
    data: str = ""  # what it learned from: "enwik8", "stdlib", "cifar10"

    steps: int = 0  # that were timed
    step_seconds: float = 0.0  # median
    step_seconds_quartiles: tuple[float, float] = (0.0, 0.0)
    split: Split | None = None
    bytes_sent: float = 0.0  # per host and step: mean over the timed steps on its interface, of the host with most
    bytes_received: float = 0.0
    bytes_planned: float = 0.0  # the same as the method itself counts it; 0 where it does not
    points: tuple[Point, ...] = ()
    error: str = ""  # why there are no figures

    settings: dict[str, Any] = field(default_factory=dict)  # of the whole comparison: the key of resuming
    machine: dict[str, Any] = field(default_factory=dict)  # processor, cores, versions, commit, date
    command: str = ""

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
        """Where it was trained."""
        return (self.job, self.link, self.hosts, self.examples)

    @property
    def group(self) -> tuple[object, ...]:
        """What must be equal for figures to be compared: the place, and all settings."""
        return (*self.place, self.seed, json.dumps(self.settings, sort_keys=True))

    @property
    def key(self) -> tuple[object, ...]:
        """What a cell that was run again has in common with the first."""
        return (self.method, *self.group)

    @property
    def final_loss(self) -> float | None:
        """The last validation loss."""
        return next((p.validation_loss for p in reversed(self.points) if p.validation_loss is not None), None)

    def first_at(self, loss: float) -> Point | None:
        """Where the validation loss first was ``loss`` or less."""
        return next((p for p in self.points if p.validation_loss is not None and p.validation_loss <= loss), None)

    def to_json(self) -> str:
        return json.dumps({"kind": KIND} | asdict(self), allow_nan=False)


def parse_cell(line: str) -> Cell:
    """A cell from its line; ValueError if the line is something else."""
    try:
        values = json.loads(line, parse_constant=_refuse)
        if values.pop("kind") != KIND:
            raise ValueError("not a cell")
        known = {each.name for each in fields(Cell)}
        values = {name: value for name, value in values.items() if name in known}
        values["rates"] = tuple(values["rates"])
        values["step_seconds_quartiles"] = tuple(values["step_seconds_quartiles"])
        values["split"] = Split(**values["split"]) if values["split"] else None
        values["points"] = tuple(Point(**point) for point in values["points"])
        cell = Cell(**values)
        _check(cell)
        return cell
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a record of a comparison: {line.strip()[:80]!r}") from error


def read_cells(path: Path) -> list[Cell]:
    """The cells of a records file, the last one where a cell was run again; a line cut short by a crash is left out.

    ValueError, which names the line, if one is something else.
    """
    cells: dict[object, Cell] = {}
    for number, line in finished_lines(path):
        try:
            cell = parse_cell(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
        cells[cell.key] = cell
    return shared(list(cells.values()))


def shared(cells: Sequence[Cell]) -> list[Cell]:
    """The cells with their steps shared out, where computing alone was measured beside them."""
    ideals = {cell.group: cell for cell in cells if cell.method == COMPUTE_ALONE}
    return [_shared(cell, ideals.get(cell.group)) for cell in cells]


def _shared(cell: Cell, ideal: Cell | None) -> Cell:
    if ideal is None or ideal.split is None or cell.split is None or cell.error:
        return cell
    compute = min(ideal.split.compute, cell.step_seconds - cell.split.update)
    wait = cell.step_seconds - cell.split.update - compute
    return replace(cell, split=Split(compute=compute, wait=wait, update=cell.split.update))


def _check(cell: Cell) -> None:
    """TypeError or ValueError where a value is not of its field's type, or infinite."""
    points, split = cell.points, cell.split
    texts = (cell.method, cell.label, cell.job, cell.unit, cell.examples_unit, cell.error, cell.command, *cell.rates)
    counts = (cell.hosts, cell.examples, cell.parameters, cell.seed, cell.steps, *(p.step for p in points))
    numbers = [
        *(cell.step_seconds, *cell.step_seconds_quartiles, cell.bytes_sent, cell.bytes_received),
        *((split.compute, split.wait, split.update) if split else ()),
        *(value for p in points for value in (p.seconds, p.bytes_sent)),
        *(loss for p in points for loss in (p.train_loss, p.validation_loss) if loss is not None),
    ]
    kinds = ((texts, str), (counts, int), ((cell.machine,), dict))
    if not all(isinstance(value, kind) for values, kind in kinds for value in values):
        raise TypeError("a value of another type")
    if not all(map(math.isfinite, numbers)):
        raise ValueError("a number that is infinite")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")
