"""Cells of a comparison beside one another: at one place, and from place to place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lioncub.errors import ConfigError
from lioncub.tools.compare.methods import ADAMW, BASELINE, COMPUTE_ALONE
from lioncub.tools.compare.methods import METHODS as ALL_METHODS
from lioncub.tools.compare.records import Cell
from lioncub.tools.lab.rates import Rate
from lioncub.tools.reporting.units import counted

METHODS = tuple(method for method in ALL_METHODS if method != COMPUTE_ALONE)
"""The order in which methods are shown; others come after these, compute alone last."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """The median step's seconds, shared out."""

    compute: float  # forward and backward, as they take when nothing communicates
    wait: float  # the rest: sending, waiting, encoding, being slowed down by others that do
    update: float  # moving the parameters


@dataclass(frozen=True, kw_only=True)
class Place:
    """The methods that share a job, a link, a number of hosts, an amount of work, a seed, and the run."""

    cells: tuple[Cell, ...]  # in the order of METHODS
    repeat: str = ""  # tells it from other runs at the same place; empty where there are none

    @property
    def name(self) -> str:
        one = self.cells[0]
        where = f"{one.job}, {one.link}, {counted(one.hosts, 'host')}, {one.examples:,} {one.examples_unit} each"
        return f"{where} ({self.repeat})" if self.repeat else where

    def cell(self, method: str) -> Cell | None:
        """The method's figures; None if there are none."""
        return next((cell for cell in self.timed if cell.method == method), None)

    @property
    def baseline(self) -> Cell | None:
        """What ratios are taken against."""
        return self.cell(BASELINE) or self.cell(ADAMW)

    @property
    def timed(self) -> list[Cell]:
        return [cell for cell in self.cells if not cell.error and cell.step_seconds > 0]

    @property
    def trained(self) -> list[Cell]:
        """The methods whose model learned something."""
        return [cell for cell in self.cells if cell.method != COMPUTE_ALONE and learned(cell)]

    def speedup(self, cell: Cell) -> float | None:
        """How many of its steps go into one of the baseline."""
        baseline = self.baseline
        return baseline.step_seconds / cell.step_seconds if baseline and cell in self.timed else None

    def share_of_ideal(self, cell: Cell) -> float | None:
        """Its speedup as a part of the speedup that a network without limits would give."""
        ideal = self.cell(COMPUTE_ALONE)
        return ideal.step_seconds / cell.step_seconds if ideal and cell in self.timed else None

    def split(self, cell: Cell) -> Split | None:
        """None where computing alone was not measured, so that nobody knows how long the method waits."""
        ideal = self.cell(COMPUTE_ALONE)
        if ideal is None or ideal.update_seconds is None or cell.update_seconds is None or cell not in self.timed:
            return None
        compute = min(ideal.step_seconds - ideal.update_seconds, cell.step_seconds - cell.update_seconds)
        wait = cell.step_seconds - cell.update_seconds - compute
        return Split(compute=compute, wait=wait, update=cell.update_seconds)

    def fewer_bytes(self, cell: Cell) -> float | None:
        """How many times fewer it sends per step than the baseline."""
        baseline = self.baseline
        sends = cell in self.timed and cell.method != COMPUTE_ALONE and cell.bytes_sent
        return baseline.bytes_sent / cell.bytes_sent if baseline and sends else None

    @property
    def common_loss(self) -> float | None:
        """The best validation loss that all methods that learned something reached."""
        return max((best_loss(cell) for cell in self.trained), default=None)

    def seconds_to_common_loss(self, cell: Cell) -> float | None:
        loss = self.common_loss
        point = cell.first_at(loss) if loss is not None and cell in self.trained else None
        return point.seconds if point else None


def places_of(cells: Iterable[Cell]) -> list[Place]:
    """The places, sorted: by job, hosts, link (the slowest first), examples, seed, the newest run first."""
    found: dict[object, list[Cell]] = {}
    for cell in sorted(sorted(cells, key=lambda cell: cell.run, reverse=True), key=_order):
        found.setdefault(cell.group, []).append(cell)
    places = [Place(cells=tuple(sorted(members, key=lambda cell: rank(cell.method)))) for members in found.values()]
    times = Counter(place.name for place in places)
    return [replace(place, repeat=_told_apart(place.cells[0])) if times[place.name] > 1 else place for place in places]


def _told_apart(cell: Cell) -> str:
    """When it was measured, at which commit, with which seed: what runs at one place differ in."""
    when, _, _ = cell.run.partition(" UTC")
    told = [when, str(cell.machine.get("commit", ""))[:7], f"seed {cell.seed}" if cell.seed else ""]
    return ", ".join(part for part in told if part)


def with_other_links(place: Place, places: Sequence[Place]) -> list[Place]:
    """Those that differ from ``place`` in the rate of their links only, the slowest first."""
    one = place.cells[0]
    alike = [each for each in places if _but_link(each.cells[0]) == _but_link(one) and rate_of(each.cells[0])]
    return sorted(alike, key=lambda each: rate_of(each.cells[0]) or 0.0)


def with_other_hosts(place: Place, places: Sequence[Place]) -> list[Place]:
    """Those that differ from ``place`` in the number of hosts only, the fewest first."""
    one = place.cells[0]
    alike = [each for each in places if _but_hosts(each.cells[0]) == _but_hosts(one)]
    return sorted(alike, key=lambda each: each.cells[0].hosts)


def rate_of(cell: Cell) -> float | None:
    """Bits per second of every host's link; None where links are unshaped or differ."""
    return bits_per_second(cell.rates[0]) if len(set(cell.rates)) == 1 else None


def best_loss(cell: Cell) -> float:
    return min(point.validation_loss for point in cell.points if point.validation_loss is not None)


def learned(cell: Cell) -> bool:
    """Whether some validation loss after a step is below the untrained model's."""
    losses = [(point.step, point.validation_loss) for point in cell.points if point.validation_loss is not None]
    untrained = min((loss for step, loss in losses if step == 0), default=float("inf"))
    return not cell.error and any(step and loss < untrained for step, loss in losses)


def rank(method: str) -> int:
    """Where a method is shown among the others."""
    if method == COMPUTE_ALONE:
        return len(METHODS) + 1
    return METHODS.index(method) if method in METHODS else len(METHODS)


def _order(cell: Cell) -> tuple[object, ...]:
    slowest = min((bits_per_second(rate) or 0.0 for rate in cell.rates), default=float("inf"))
    return (cell.job, cell.hosts, slowest, cell.link, cell.examples, cell.seed)


def _but_link(cell: Cell) -> tuple[object, ...]:
    return (cell.run, cell.job, cell.hosts, cell.examples, cell.seed)


def _but_hosts(cell: Cell) -> tuple[object, ...]:
    kinds = tuple(sorted(set(cell.rates)))
    return (cell.run, cell.job, kinds, cell.examples, cell.seed)


def bits_per_second(rate: str) -> float | None:
    """Of a link; None where it is no rate."""
    try:
        return float(Rate.parse(rate).bits_per_second)
    except ConfigError:
        return None
