"""Figures of single tensors, gathered by the kind of layer they belong to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from lioncub.momentum.policy import SAMPLE
from lioncub.tools.reporting.grid import Grid
from lioncub.tools.study.kinds import KINDS, by_kind
from lioncub.tools.study.records import Run
from lioncub.tools.study.results import Sample


def agreement_table(title: str, found: Sequence[Sample]) -> Grid | None:
    """How often the outcome has the sign of the exact average."""
    return _table(
        f"{title}: agreement with the exact sign",
        found,
        lambda run: {name: 100 * value for name, value in run.agreement.items()},
        "Percent of the coordinates that anyone has a say on; the mean over tensors, steps and seeds.",
    )


def divergence_table(title: str, found: Sequence[Sample]) -> Grid | None:
    """How far the workers' momenta are apart."""
    return _table(
        f"{title}: how far momenta drift",
        found,
        lambda run: run.divergence,
        f"At the end: 0 where all workers have the same momentum, 1 - 1/n where they have nothing in common; estimated "
        f"from up to {SAMPLE} elements of each tensor; the mean over tensors and seeds.",
    )


def _table(title: str, found: Sequence[Sample], of: Callable[[Run], Mapping[str, float]], note: str) -> Grid | None:
    """A row for each method and number of workers that has such figures, a column for each kind of layer."""
    several = len({sample.one.spec.workers for sample in found}) > 1
    lines: list[tuple[str, dict[str, float]]] = []
    for sample in found:
        kinds = [by_kind(of(run)) for run in sample.runs if of(run)]
        if kinds:
            label = sample.one.label + (f", {sample.one.spec.workers} workers" if several else "")
            lines.append((label, {each: fmean(row[each] for row in kinds) for each in kinds[0]}))
    columns = [each for each in KINDS if any(each in row for _, row in lines)]
    if not lines:
        return None
    rows = [[label, *(f"{row[each]:.3g}" if each in row else "–" for each in columns)] for label, row in lines]
    return Grid(title, ["method", *columns], rows, note)
