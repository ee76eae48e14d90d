"""From experiments to runs: what is left to do, given what is done."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from lioncub.study.methods import METHODS
from lioncub.study.presets import SEARCH_SEED, SEARCH_WORKERS, Experiment, Preset
from lioncub.study.records import Run, Spec
from lioncub.study.tasks import TASKS

MOST_BEYOND = 2
"""How many rates a search may try beyond its grid."""


def search(
    task: str, method: str, preset: Preset, done: Mapping[str, Run], *, so_far: bool = False
) -> tuple[list[Spec], float | None]:
    """The runs by which a method's learning rate is found, and the rate; None while they are not finished.

    The family's grid, the same for each of its methods; and where the best is at an end of it, what is beyond.
    ``so_far``: as long as that has not been tried, the best of the grid.
    """
    best: float | None = None
    if method in preset.rates:
        return [], preset.rates[method]
    rates = list(TASKS[task].lrs[METHODS[method].family])
    for tries_left in reversed(range(MOST_BEYOND + 1)):
        wanted = [_spec(task, method, SEARCH_WORKERS, SEARCH_SEED, lr, preset.length) for lr in rates]
        runs = [done[spec.key] for spec in wanted if spec.key in done]
        if len(runs) < len(wanted):
            break
        best = min(runs, key=lambda run: run.end_loss).spec.lr
        if rates[0] < best < rates[-1] or not tries_left:
            return wanted, best
        if best == rates[0]:
            rates.insert(0, next_rate(best, up=False))
        else:
            rates.append(next_rate(best, up=True))
    return wanted, best if so_far else None


def next_rate(lr: float, *, up: bool) -> float:
    """Of 1, 3, 10, 30, …: the one above or below."""
    steps = round(2 * math.log10(lr)) + (1 if up else -1)
    return float(f"{1 if steps % 2 == 0 else 3}e{steps // 2}")


def specs(
    experiment: Experiment, preset: Preset, done: Mapping[str, Run], *, so_far: bool = False
) -> tuple[list[Spec], bool]:
    """The experiment's runs as far as they are known, and whether those are all; ``so_far``: see :func:`search`.

    Searches come first, then the fewest workers, which take the least time, task after task and seed after seed: where
    time ends, methods have been run as often.
    """
    searches: list[Spec] = []
    runs: list[Spec] = []
    complete = True
    for task, method in product(experiment.tasks, experiment.methods):
        tried, lr = search(task, experiment.lr_of or method, preset, done, so_far=so_far)
        searches += tried
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
