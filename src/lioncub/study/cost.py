"""What a study takes: runs and hours, experiment by experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from lioncub.publish.grid import Grid
from lioncub.study.plan import specs
from lioncub.study.presets import Preset
from lioncub.study.records import Run

HOUR = 3600.0
NOTE = (
    "Hours of one core, searches included; a run that several experiments have counts with the first. As measured: "
    "beside whatever else the machine did. At the usual pace: with the median time of a task's examples, what is left "
    "included. Divide by the cores you have."
)


def cost_table(preset: Preset, names: Sequence[str], runs: Sequence[Run]) -> Grid:
    """A row for each experiment, and their sum."""
    done = {run.spec.key: run for run in runs}
    pace = paces(runs)
    seen: set[str] = set()
    rows, sums = [], [0.0] * 4
    for name in names:
        own = {spec.key: spec for spec in specs(preset.experiments[name], preset, done)[0] if spec.key not in seen}
        seen |= own.keys()
        made = [done[key] for key in own if key in done]
        usual = sum(pace.get(spec.task, 0.0) * spec.num_examples for spec in own.values())
        cells = [len(made), len(own) - len(made), sum(run.seconds for run in made) / HOUR, usual / HOUR]
        rows.append(_row(name, cells))
        sums = [total + cell for total, cell in zip(sums, cells, strict=True)]
    head = ["experiment", "runs", "left", "hours as measured", "hours at the usual pace"]
    return Grid("What it takes", head, [*rows, _row("all", sums)], NOTE)


def paces(runs: Sequence[Run]) -> Mapping[str, float]:
    """By task: the median seconds that an example took."""
    found: dict[str, list[float]] = {}
    for run in runs:
        found.setdefault(run.spec.task, []).append(run.seconds / run.spec.num_examples)
    return {task: median(each) for task, each in found.items()}


def _row(name: str, cells: Sequence[float]) -> list[str]:
    made, left, measured, usual = cells
    return [name, f"{made:.0f}", f"{left:.0f}", f"{measured:.2f}", f"{usual:.2f}"]
