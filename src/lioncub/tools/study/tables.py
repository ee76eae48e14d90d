"""A study's results as tables."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from lioncub.tools.reporting.grid import Grid
from lioncub.tools.study.layers import agreement_table, divergence_table
from lioncub.tools.study.presets import Preset
from lioncub.tools.study.records import Run
from lioncub.tools.study.results import FULL_PRECISION, Sample, grouped, rates_vary, views
from lioncub.tools.study.tasks import TASKS

NONE = "–"
MEBI = 1 << 20


def tables(preset: Preset, names: Sequence[str], runs: Sequence[Run]) -> list[Grid]:
    """One for each experiment that has figures; and for some, what single layers and processes took."""
    grids = []
    for name, shown in groupby(views(preset, names, runs), key=lambda view: view.name):
        own = list(shown)
        experiment = own[0].experiment
        found = [sample for view in own for sample in view.found]
        grids.append(comparison(f"{name}: {experiment.question}", found))
        if experiment.peak_memory:
            grids.append(memory_table(f"{name}: memory", found))
        if experiment.by_layer:
            by_layer = (each(view.title, view.found) for view in own for each in (agreement_table, divergence_table))
            grids += [grid for grid in by_layer if grid is not None]
    return grids


def comparison(title: str, found: Sequence[Sample]) -> Grid:
    """A row for each method in each place, against what people have there."""
    rates = rates_vary(found)
    labels = {sample.one.spec.method: sample.one.label for sample in found}
    yardsticks = [method for method in FULL_PRECISION if method in labels and not rates][:2]
    rows = []
    for sample in found:
        place = f"{sample.one.spec.task}, {condition(sample, rates=rates)}"
        row = [place, sample.one.label, f"{sample.bits:.2f}", quality(sample), str(len(sample.runs))]
        rows.append([*row, *(difference(sample, counterpart(sample, method, found)) for method in yardsticks)])
    units = sorted({TASKS[sample.one.spec.task].unit for sample in found})
    note = f"{'; '.join(units)}: mean ± standard error over seeds. Bits up and down, from the encoded bytes."
    if yardsticks:
        note += (
            " Better by: seed by seed (first weights and batches are the same for all), with its standard error; in "
            "brackets half of the interval that holds the true difference with 95%, by Student's t."
        )
    head = ["place", "method", "bits", "quality", "seeds", *(f"better than {labels[each]} by" for each in yardsticks)]
    return Grid(title, head, rows, note, num_texts=2)


def counterpart(sample: Sample, method: str, found: Sequence[Sample]) -> Sample | None:
    """Another method's sample at the same place; None for itself."""
    where = place_of(sample)
    there = [each for each in found if each.one.spec.method == method and place_of(each) == where]
    return there[0] if there and there[0] is not sample else None


def place_of(sample: Sample) -> tuple[object, ...]:
    spec = sample.one.spec
    return spec.task, spec.workers, spec.steps, spec.skew


def difference(sample: Sample, other: Sample | None) -> str:
    """How much better it is than ``other``."""
    gain = None if other is None else sample.against(other)
    if gain is None:
        return NONE
    digits = _digits(sample) + 1
    if gain.error is None or gain.reach is None:
        return f"{gain.mean:+.{digits}f}"
    return f"{gain.mean:+.{digits}f} ± {gain.error:.{digits}f} ({gain.reach:.{digits}f})"


def memory_table(title: str, found: Sequence[Sample]) -> Grid:
    """The most that a run's process had in use, and what a worker adds to it."""
    rows = []
    for label, own in grouped(found).items():
        peaks = {sample.one.spec.workers: sample.peak_bytes for sample in own}
        known = {workers: peak for workers, peak in peaks.items() if peak is not None}
        few, many = min(known, default=0), max(known, default=0)
        if few < many:
            growth = (known[many] - known[few]) / (many - few) / own[0].one.parameters
            cells = [f"{known[few] / MEBI:,.0f} MiB", f"{known[many] / MEBI:,.0f} MiB", f"{growth:.2f} bytes"]
            rows.append([label, f"{few} and {many}", *cells])
    head = ["method", "workers", "with the fewer", "with the more", "each worker adds, per parameter"]
    return Grid(title, head, rows, "Peak resident memory of the process, torch itself and the data set included.")


def table(title: str, found: Sequence[Sample]) -> Grid:
    """A row for each method, a column for each condition."""
    rates = rates_vary(found)
    named = {id(sample): condition(sample, rates=rates) for sample in found}
    conditions = list(dict.fromkeys(named.values()))
    labels = list(dict.fromkeys(sample.one.label for sample in found))
    cells = {(sample.one.label, named[id(sample)]): sample for sample in found}
    seeds = max(len(sample.runs) for sample in found)
    rows = []
    for label in labels:
        own = [cells.get((label, each)) for each in conditions]
        some = next(sample for sample in own if sample is not None)
        texts = (quality(sample, of=seeds) for sample in own)
        rows.append([label, f"{some.bits_up:.2f}", f"{some.bits_down:.2f}", *texts])
    task = TASKS[found[0].one.spec.task]
    best = "more is better" if task.higher_is_better else "less is better"
    fewer = any(len(sample.runs) < seeds for sample in found)
    return Grid(
        title,
        ["method", "bits up", "bits down", *conditions],
        rows,
        f"{task.unit[0].upper()}{task.unit[1:]} ({best}), "
        + ("one seed" if seeds == 1 else f"mean ± standard error over {seeds} seeds")
        + (", or as many as are in brackets: compare those with the next table only. " if fewer else ". ")
        + "Bits per parameter and step, from the encoded bytes.",
    )


def condition(sample: Sample, *, rates: bool = False) -> str:
    """What a figure holds for, besides its method; with the learning rate where that is what varies."""
    spec = sample.one.spec
    parts = [f"{spec.workers} workers"]
    if spec.skew is not None:
        parts.append(f"skew {spec.skew:g}")
    if spec.memory:
        parts.append(f"β2 {spec.memory}")
    if rates:
        parts.append(f"lr {spec.lr:g}")
    return ", ".join(parts)


def _digits(sample: Sample) -> int:
    return 1 if TASKS[sample.one.spec.task].higher_is_better else 3


def quality(sample: Sample | None, *, of: int = 0) -> str:
    """``of``: so many seeds there may be; how many there are is said where they are fewer."""
    if sample is None:
        return NONE
    if sample.quality is None:
        return "not finite"
    digits = _digits(sample)
    spread = "" if sample.error is None else f" ± {sample.error:.{digits}f}"
    fewer = f" [{len(sample.runs)}]" if len(sample.runs) < of else ""
    return f"{sample.quality:.{digits}f}{spread}{fewer}"
