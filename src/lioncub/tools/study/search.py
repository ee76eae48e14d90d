"""How a method's settings are found: the same number of trials for every method, the cheap ones first.

:data:`TRIALS` runs of half the length go along one setting after another: the learning rate over its family's grid and
beyond an end where the best is, then what else the family may choose (how long its averages remember, a slower rise of
the rate, weight decay), each at the best so far, then rates between those of the grid. The best of each of the
:data:`FINALISTS` best rates are run in full, for longer runs may want another rate, and then :data:`NEIGHBOURS` rates
beside the best of these, each on two seeds: one seed's best rate is often not the next one's. Only training losses are
compared, on seeds that no figure uses.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from lioncub.tools.study.methods import METHODS
from lioncub.tools.study.records import Run, Spec
from lioncub.tools.study.settings import Setting
from lioncub.tools.study.tasks import TASKS

SEARCH_WORKERS = 8
SEARCH_SEED = 1000
FULL_SEEDS = (SEARCH_SEED, 1001)
"""Of the runs in full."""
TRIALS, FINALISTS, NEIGHBOURS = 9, 2, 2
SHORT = 0.5
"""The length of a trial, as a part of the task's."""

MOST_BEYOND = 2
"""How many rates may be tried beyond a grid."""

SLOW_RISE = 0.25
DECAYS = (3.0, 1 / 3)


def spec_of(
    setting: Setting, task: str, method: str, *, workers: int, seed: int, length: float, skew: float | None = None
) -> Spec:
    """The run with this setting."""
    about = TASKS[task]
    return Spec(
        task=task,
        method=method,
        workers=workers,
        seed=seed,
        lr=setting.lr,
        weight_decay=about.weight_decay[METHODS[method].family] * setting.decay,
        steps=max(round(about.steps * length), 10),
        examples=about.examples,
        skew=skew,
        rise=setting.rise,
        memory=setting.memory,
    )


Trials = Generator[Sequence[Setting], Sequence[float], list[Setting]]
"""Yields settings to try, is sent their losses, and returns all of them, the best first."""


def search(
    task: str, method: str, done: Mapping[str, Run], *, length: float = 1.0, so_far: bool = False
) -> tuple[list[Spec], Setting | None]:
    """The runs by which a method's setting is found as far as they are known, and the setting.

    None while they are not finished; ``so_far``: then the best of those that are there.
    """
    specs: list[Spec] = []
    ranked: list[tuple[float, Setting]] = []

    def losses(settings: Sequence[Setting], part: float, seeds: Sequence[int] = FULL_SEEDS) -> list[float] | None:
        wanted = [
            [spec_of(each, task, method, workers=SEARCH_WORKERS, seed=seed, length=length * part) for seed in seeds]
            for each in settings
        ]
        specs.extend(spec for row in wanted for spec in row)
        if any(spec.key not in done for row in wanted for spec in row):
            return None
        return [fmean(done[spec.key].end_loss for spec in row) for row in wanted]

    def best_so_far() -> Setting | None:
        return min(ranked, key=lambda pair: pair[0])[1] if so_far and ranked else None

    trials = proposed(TASKS[task].lrs[METHODS[method].family], METHODS[method].memories)
    proposal = next(trials)
    while True:
        found = losses(proposal, SHORT, [SEARCH_SEED])
        if found is None:
            return specs, best_so_far()
        ranked += zip(found, proposal, strict=True)
        try:
            proposal = trials.send(found)
        except StopIteration as end:
            finalists = best_by_rate(end.value)[:FINALISTS]
            break
    found = losses(finalists, 1.0)
    if found is None:
        return specs, best_so_far()
    neighbours = beside(best_of(finalists, found), finalists)
    near = losses(neighbours, 1.0)
    if near is None:
        return specs, best_so_far()
    return specs, best_of([*finalists, *neighbours], [*found, *near])


def best_of(settings: Sequence[Setting], losses: Sequence[float]) -> Setting:
    return min(zip(losses, range(len(settings)), settings, strict=True))[2]


def beside(best: Setting, known: Sequence[Setting]) -> list[Setting]:
    """The nearest rates below and above that are not known."""
    rates = [float(f"{best.lr * factor:.2g}") for factor in (1 / 1.8, 1.8, 1 / 3.2, 3.2)]
    return [replace(best, lr=lr) for lr in rates if lr not in {setting.lr for setting in known}][:NEIGHBOURS]


def best_by_rate(ranked: Sequence[Setting]) -> list[Setting]:
    """The first setting of each learning rate."""
    found: dict[float, Setting] = {}
    for setting in ranked:
        found.setdefault(setting.lr, setting)
    return list(found.values())


def proposed(lrs: Sequence[float], memories: Sequence[str]) -> Trials:
    """Settings to try, one dimension after another, each at the best so far."""
    tried: dict[Setting, float] = {}

    def best() -> Setting:
        return min(tried, key=lambda setting: tried[setting])

    def left() -> int:
        return TRIALS - len(tried)

    def attempt(settings: Sequence[Setting]) -> Generator[Sequence[Setting], Sequence[float], None]:
        new = [setting for setting in settings if setting not in tried][: left()]
        if new:
            results = yield new
            tried.update(zip(new, results, strict=True))

    yield from attempt([Setting(lr) for lr in lrs])
    rates = list(lrs)
    for _ in range(MOST_BEYOND):
        if rates[0] < best().lr < rates[-1]:
            break
        up = best().lr == rates[-1]
        rates.append(next_rate(best().lr, up=up))
        rates.sort()
        yield from attempt([Setting(rates[-1 if up else 0])])
    for memory in memories:
        yield from attempt([replace(best(), memory=memory)])
    yield from attempt([replace(best(), rise=SLOW_RISE)])
    for decay in DECAYS:
        yield from attempt([replace(best(), decay=decay)])
    for factor in (1.8, 1 / 1.8):
        yield from attempt([replace(best(), lr=float(f"{best().lr * factor:.2g}"))])
    return sorted(tried, key=lambda setting: tried[setting])


def next_rate(lr: float, *, up: bool) -> float:
    """Of 1, 3, 10, 30, …: the one above or below."""
    steps = round(2 * math.log10(lr)) + (1 if up else -1)
    return float(f"{1 if steps % 2 == 0 else 3}e{steps // 2}")
