"""What a study takes: the size of its tasks, runs and hours, and the settings that were found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from statistics import median

from lioncub.tools.reporting.grid import Grid
from lioncub.tools.study.methods import METHODS
from lioncub.tools.study.plan import setting_of, specs
from lioncub.tools.study.presets import Preset
from lioncub.tools.study.records import Run
from lioncub.tools.study.search import FINALISTS, NEIGHBOURS, SEARCH_WORKERS, SHORT, TRIALS
from lioncub.tools.study.settings import Setting
from lioncub.tools.study.tasks import TASKS

HOUR = 3600.0
NOTE = (
    "Hours of one core, searches included; a run that several experiments have counts with the first. As measured: "
    "beside whatever else the machine did. At the usual pace: with the median time of a task's examples, what is left "
    "included. Divide by the cores you have."
)


def effort_tables(preset: Preset, names: Sequence[str], runs: Sequence[Run]) -> list[Grid]:
    tasks = dict.fromkeys(task for name in names for task in preset.experiments[name].tasks)
    grids = (tasks_table(tasks), cost_table(preset, names, runs), settings_table(preset, names, runs))
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


def settings_table(preset: Preset, names: Sequence[str], runs: Sequence[Run]) -> Grid | None:
    """What was found for each method on each task; None where nothing was searched."""
    done = {run.spec.key: run for run in runs}
    found: dict[str, dict[str, str]] = {}
    for experiment in map(preset.experiments.__getitem__, names):
        for task, method in product(experiment.tasks, experiment.methods):
            source = experiment.settings_of or method
            tried, settings = setting_of(replace(experiment, settings_of=""), task, source, preset, done)
            if tried and settings:
                found.setdefault(METHODS[source].label, {})[task] = described(settings[0])
    tasks = list(dict.fromkeys(task for row in found.values() for task in row))
    rows = [[label, *(row.get(task, "–") for task in tasks)] for label, row in found.items()]
    note = (
        f"What every method's search found, by training loss on seeds that no figure uses: {TRIALS} trials of "
        f"{SHORT:g} of the length at {SEARCH_WORKERS} workers, then {FINALISTS} rates and {NEIGHBOURS} beside the "
        "best of them in full on two seeds. Learning rate; decay "
        "times the task's, how long averages remember (β2) and the part of the steps in which the rate rises, where "
        "they are not what the method comes with (5% of the steps)."
    )
    return Grid("Settings", ["method", *tasks], rows, note) if rows else None


def described(setting: Setting) -> str:
    """What differs from a plain one in a few words."""
    parts = [f"{setting.lr:g}"]
    if setting.decay != 1:
        parts.append(f"decay × {setting.decay:.2g}")
    if setting.memory:
        parts.append(f"β2 {setting.memory}")
    if setting.rise != Setting(0.0).rise:
        parts.append(f"rise {setting.rise:.0%}")
    return ", ".join(parts)


def paces(runs: Sequence[Run]) -> Mapping[str, float]:
    """By task: the median seconds that an example took."""
    found: dict[str, list[float]] = {}
    for run in runs:
        found.setdefault(run.spec.task, []).append(run.seconds / run.spec.num_examples)
    return {task: median(each) for task, each in found.items()}


def _row(name: str, cells: Sequence[float]) -> list[str]:
    made, left, measured, usual = cells
    return [name, f"{made:.0f}", f"{left:.0f}", f"{measured:.2f}", f"{usual:.2f}"]
