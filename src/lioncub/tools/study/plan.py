"""From experiments to runs: what is left to do, given what is done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product

from lioncub.tools.study.methods import METHODS
from lioncub.tools.study.presets import Experiment, Preset
from lioncub.tools.study.records import Run, Spec
from lioncub.tools.study.search import search, spec_of
from lioncub.tools.study.settings import Setting


def setting_of(
    experiment: Experiment, task: str, method: str, preset: Preset, done: Mapping[str, Run], *, so_far: bool = False
) -> tuple[list[Spec], list[Setting] | None]:
    """The runs of a method's search, and the settings that the experiment takes; None while they are not known."""
    source = experiment.settings_of or method
    if rates := experiment.rates.get(METHODS[source].family):
        return [], [Setting(lr) for lr in rates]
    if source in preset.settings:
        return [], [preset.settings[source]]
    tried, found = search(task, source, done, length=preset.length, so_far=so_far)
    if found is None:
        return tried, None
    return tried, [found if source == method else replace(found, memory="")]


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
        tried, settings = setting_of(experiment, task, method, preset, done, so_far=so_far)
        searches += tried
        if settings is None:
            complete = False
            continue
        for setting, workers, seed, skew in product(
            variants(experiment, settings), experiment.workers, experiment.seeds, experiment.skews
        ):
            length = preset.length * experiment.length
            runs.append(spec_of(setting, task, method, workers=workers, seed=seed, length=length, skew=skew))
    runs.sort(key=lambda spec: (spec.workers, experiment.tasks.index(spec.task), spec.seed))
    return searches + runs, complete


def variants(experiment: Experiment, settings: Iterable[Setting]) -> list[Setting]:
    """What the experiment varies about the settings that were found."""
    memories = experiment.memories
    return [
        setting if memory is None else replace(setting, memory=memory) for setting in settings for memory in memories
    ]


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
