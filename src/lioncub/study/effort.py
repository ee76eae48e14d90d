"""What a study takes: the size of its tasks, runs and hours, the learning rates that were tried and found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from statistics import median

from lioncub.publish.grid import Grid
from lioncub.study.methods import METHODS
from lioncub.study.plan import search, specs
from lioncub.study.presets import SEARCH_WORKERS, Preset
from lioncub.study.records import Run
from lioncub.study.tasks import TASKS

HOUR = 3600.0
NOTE = (
    "Hours of one core, searches included; a run that several experiments have counts with the first. As measured: "
    "beside whatever else the machine did. At the usual pace: with the median time of a task's examples, what is left "
    "included. Divide by the cores you have."
)


def effort_tables(preset: Preset, names: Sequence[str], runs: Sequence[Run]) -> list[Grid]:
    tasks = dict.fromkeys(task for name in names for task in preset.experiments[name].tasks)
    grids = (tasks_table(tasks), cost_table(preset, names, runs), rates_table(preset, names, runs))
    return [grid for grid in grids if grid is not None]


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


def tasks_table(names: Iterable[str]) -> Grid:
    """How large the experiments are."""
    rows = []
    for task in map(TASKS.__getitem__, names):
        seen = task.examples * task.steps * SEARCH_WORKERS
        of = "images" if task.is_images else "bytes"
        sizes = (f"{size:,} {of}" for size in (task.examples, seen, task.judged_on))
        decay = ", ".join(f"{family} {value:g}" for family, value in task.weight_decay.items())
        rows.append([task.name, task.job, f"{task.steps:,}", *sizes, decay])
    head = ["task", "model", "steps", "a worker's batch", f"seen by {SEARCH_WORKERS} workers", "judged on", "decay"]
    note = (
        "Judged on evenly spaced examples of the test part, text in separate windows. Errors over seeds do not include "
        "that sample's: 2,000 images of which 40% are named rightly are uncertain by a point."
    )
    return Grid("Tasks", head, rows, note, num_texts=2)


def rates_table(preset: Preset, names: Sequence[str], runs: Sequence[Run]) -> Grid | None:
    """The rate of each method on each task, with those that were tried; None where nothing was searched."""
    done = {run.spec.key: run for run in runs}
    found: dict[str, dict[str, str]] = {}
    for experiment in map(preset.experiments.__getitem__, names):
        for task, method in product(experiment.tasks, experiment.methods):
            wanted, lr = search(task, experiment.lr_of or method, preset, done)
            if wanted and lr is not None:
                tried = [spec.lr for spec in wanted]
                label = METHODS[experiment.lr_of or method].label
                found.setdefault(label, {})[task] = f"{lr:g} of {min(tried):g} to {max(tried):g}"
    tasks = list(dict.fromkeys(task for row in found.values() for task in row))
    rows = [[label, *(row.get(task, "–") for task in tasks)] for label, row in found.items()]
    note = "What every method's search found, by training loss, of 1, 3, 10, 30, … between the ends that are named."
    return Grid("Learning rates", ["method", *tasks], rows, note) if rows else None


def paces(runs: Sequence[Run]) -> Mapping[str, float]:
    """By task: the median seconds that an example took."""
    found: dict[str, list[float]] = {}
    for run in runs:
        found.setdefault(run.spec.task, []).append(run.seconds / run.spec.num_examples)
    return {task: median(each) for task, each in found.items()}


def _row(name: str, cells: Sequence[float]) -> list[str]:
    made, left, measured, usual = cells
    return [name, f"{made:.0f}", f"{left:.0f}", f"{measured:.2f}", f"{usual:.2f}"]
