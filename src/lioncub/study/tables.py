"""A study's results as tables."""

from __future__ import annotations

from collections.abc import Sequence

from lioncub.publish.grid import Grid
from lioncub.study.layers import agreement_table, divergence_table
from lioncub.study.presets import Preset
from lioncub.study.records import Run
from lioncub.study.results import Sample, grouped, rates_vary, views
from lioncub.study.tasks import TASKS

NONE = "–"
MEBI = 1 << 20


def tables(preset: Preset, names: Sequence[str], runs: Sequence[Run]) -> list[Grid]:
    """One for each experiment and task that has figures."""
    grids = []
    for view in views(preset, names, runs):
        grids.append(table(f"{view.title}: {view.experiment.question}", view.found))
        grids += against_lion(view.title, view.found)
        if view.experiment.by_seed:
            grids.append(seed_table(f"{view.title}: seed by seed", view.found))
        if view.experiment.peak_memory:
            grids.append(memory_table(f"{view.title}: memory", view.found))
        if view.experiment.by_layer:
            by_layer = (each(view.title, view.found) for each in (agreement_table, divergence_table))
            grids += [grid for grid in by_layer if grid is not None]
    return grids


def seed_table(title: str, found: Sequence[Sample]) -> Grid:
    """A column for each seed."""
    seeds = sorted({run.spec.seed for sample in found for run in sample.runs})
    rows = []
    for sample in found:
        own = {run.spec.seed: Sample((run,)) for run in sample.runs}
        rows.append([sample.one.label, *(quality(own.get(seed)) for seed in seeds)])
    return Grid(title, ["method", *(f"seed {seed}" for seed in seeds)], rows)


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


def against_lion(title: str, found: Sequence[Sample]) -> list[Grid]:
    """How far each method is from averaging in full precision at the same condition; none without that or seeds."""
    exact = {condition(sample): sample for sample in found if sample.is_full_precision}
    pairs = [(sample, exact[condition(sample)]) for sample in found if condition(sample) in exact]
    rows = [row for sample, other in pairs if sample is not other and (row := difference(sample, other))]
    if not rows or rates_vary(found):
        return []
    head = ["method", "where", "bits", "seeds", "better by", "95% interval", "within", "certain"]
    note = (
        f"Against {pairs[0][1].one.label}, seed by seed (a seed's first weights and batches are the same for all "
        "methods), with the standard error of the mean difference and the interval that holds the true one with 95%, "
        "by Student's t. Within: no worse by more than one standard error, which is not to say equal; certain: the "
        "interval leaves out zero. Bits: up and down."
    )
    return [Grid(f"{title}: against full precision", head, rows, note, num_texts=2)]


def difference(sample: Sample, other: Sample) -> list[str] | None:
    """A row of :func:`against_lion`; None where one of the two failed or there is no error."""
    gain = sample.against(other)
    if gain is None or gain.error is None or gain.reach is None:
        return None
    digits = _digits(sample) + 1
    better = f"{gain.mean:+.{digits}f} ± {gain.error:.{digits}f}"
    interval = f"{gain.mean - gain.reach:+.{digits}f} to {gain.mean + gain.reach:+.{digits}f}"
    seeds = str(gain.seeds)
    verdicts = ("yes" if verdict else "no" for verdict in (gain.within_one_error, gain.is_certain))
    return [sample.one.label, condition(sample), f"{sample.bits:.2f}", seeds, better, interval, *verdicts]


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
    if rates:
        parts.append(f"lr {spec.lr:g}, decay {spec.weight_decay:g}")
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
