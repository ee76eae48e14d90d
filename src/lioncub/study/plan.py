"""From experiments to runs: what is left to do, given what is done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from lioncub.study.methods import METHODS
from lioncub.study.presets import SEARCH_SEED, SEARCH_WORKERS, Experiment, Preset
from lioncub.study.records import Run, Spec
from lioncub.study.tasks import TASKS


def search(task: str, method: str, length: float) -> list[Spec]:
    """The runs by which a method's learning rate for a task is found."""
    family = METHODS[method].family
    return [_spec(task, method, SEARCH_WORKERS, SEARCH_SEED, lr, length) for lr in TASKS[task].lrs[family]]


def found_lr(task: str, method: str, preset: Preset, done: Mapping[str, Run]) -> float | None:
    """The learning rate; None while the search for it is not finished."""
    if method in preset.rates:
        return preset.rates[method]
    runs = [done.get(spec.key) for spec in search(task, method, preset.length)]
    finished = [run for run in runs if run is not None]
    if len(finished) < len(runs):
        return None
    return min(finished, key=lambda run: run.end_loss).spec.lr


def specs(experiment: Experiment, preset: Preset, done: Mapping[str, Run]) -> tuple[list[Spec], bool]:
    """The experiment's runs as far as they are known, and whether those are all.

    Searches come first, then the fewest workers, which take the least time, task after task and seed after seed: where
    time ends, methods have been run as often.
    """
    searches: list[Spec] = []
    runs: list[Spec] = []
    complete = True
    for task, method in product(experiment.tasks, experiment.methods):
        whose = experiment.lr_of or method
        lr = found_lr(task, whose, preset, done)
        if whose not in preset.rates:
            searches += search(task, whose, preset.length)
        if lr is None:
            complete = False
            continue
        for workers, seed, skew, factor, decay in product(
            experiment.workers, experiment.seeds, experiment.skews, experiment.lr_factors, experiment.decay_factors
        ):
            length = preset.length * experiment.length
            runs.append(_spec(task, method, workers, seed, lr * factor, length, skew=skew, decay=decay))
    runs.sort(key=lambda spec: (spec.workers, experiment.tasks.index(spec.task), spec.seed))
    return searches + runs, complete


def remaining(experiments: Iterable[Experiment], preset: Preset, runs: Sequence[Run]) -> tuple[list[Spec], bool]:
    """The runs that are not there yet, without repeats; and whether more will follow when those are done."""
    done = {run.spec.key: run for run in runs}
    left: dict[str, Spec] = {}
    complete = True
    for experiment in experiments:
        wanted, known = specs(experiment, preset, done)
        complete = complete and known
        left |= {spec.key: spec for spec in wanted if spec.key not in done}
    return list(left.values()), not complete


def _spec(
    task: str,
    method: str,
    workers: int,
    seed: int,
    lr: float,
    length: float,
    *,
    skew: float | None = None,
    decay: float = 1.0,
) -> Spec:
    about = TASKS[task]
    return Spec(
        task=task,
        method=method,
        workers=workers,
        seed=seed,
        lr=lr,
        weight_decay=about.weight_decay[METHODS[method].family] * decay,
        steps=max(round(about.steps * length), 10),
        examples=about.examples,
        skew=skew,
    )
