"""Runs beside one another: means over seeds, with their standard errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from lioncub.tools.study.plan import specs
from lioncub.tools.study.presets import Experiment, Preset
from lioncub.tools.study.records import Run
from lioncub.tools.study.tasks import TASKS

FULL_PRECISION = ("adamw", "lion", "exact")
"""What others are held against, the first that was run."""

STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""97.5% quantiles of Student's t with 1, 2, … degrees of freedom. Beyond, the last one is on the safe side."""


@dataclass(frozen=True)
class Sample:
    """The runs that differ in their seed alone."""

    runs: tuple[Run, ...]

    @property
    def one(self) -> Run:
        return self.runs[0]

    @property
    def failed(self) -> int:
        """Runs that did not stay finite."""
        return sum(run.quality is None for run in self.runs)

    @property
    def qualities(self) -> list[float]:
        return [run.quality for run in self.runs if run.quality is not None]

    @property
    def quality(self) -> float | None:
        return None if self.failed else fmean(self.qualities)

    @property
    def error(self) -> float | None:
        """The standard error of the mean; None with fewer than two seeds."""
        return None if self.failed else standard_error(self.qualities)

    @property
    def bits_up(self) -> float:
        return fmean(run.bits_up for run in self.runs)

    @property
    def bits_down(self) -> float:
        return fmean(run.bits_down for run in self.runs)

    @property
    def peak_bytes(self) -> int | None:
        """The most memory that one of the runs took; None where none says."""
        return max((run.peak_bytes for run in self.runs if run.peak_bytes is not None), default=None)

    @property
    def agreement(self) -> float | None:
        """How often outcomes had the exact sign: the mean over tensors and seeds; None where nobody looked."""
        means = [fmean(run.agreement.values()) for run in self.runs if run.agreement]
        return fmean(means) if means else None

    @property
    def is_full_precision(self) -> bool:
        return self.one.spec.method in FULL_PRECISION

    @property
    def bits(self) -> float:
        return self.bits_up + self.bits_down

    def against(self, other: Sample) -> Gain | None:
        """How much better it is than ``other``; None where one of them failed, or they have no seed in common.

        Seed by seed: a seed's first weights and batches are the same for every method.
        """
        if self.failed or other.failed:
            return None
        theirs = {run.spec.seed: run.quality for run in other.runs}
        sign = 1 if TASKS[self.one.spec.task].higher_is_better else -1
        pairs = [(run.quality, theirs.get(run.spec.seed)) for run in self.runs]
        gains = [sign * (mine - his) for mine, his in pairs if mine is not None and his is not None]
        return Gain(fmean(gains), standard_error(gains), len(gains)) if gains else None


@dataclass(frozen=True)
class Gain:
    """A difference in the task's unit, larger being better, and its standard error; None with fewer than two seeds."""

    mean: float
    error: float | None
    seeds: int

    @property
    def is_certain(self) -> bool | None:
        """Whether it differs from zero at the level of 5%, by Student's t: few seeds know little of their own error."""
        return None if self.reach is None else abs(self.mean) > self.reach

    @property
    def reach(self) -> float | None:
        """Half the width of the interval that holds the true difference with 95%."""
        return None if self.error is None else STUDENT[min(self.seeds - 1, len(STUDENT)) - 1] * self.error


def standard_error(values: Sequence[float]) -> float | None:
    """Of their mean; None of fewer than two."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def samples(runs: Iterable[Run]) -> list[Sample]:
    """In the order in which the runs come."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(replace(run.spec, seed=0).key, []).append(run)
    return [Sample(tuple(sorted(members, key=lambda run: run.spec.seed))) for members in found.values()]


def of_experiment(experiment: Experiment, preset: Preset, runs: Sequence[Run]) -> list[Sample]:
    """The experiment's samples as far as they are made, without the searches."""
    done = {run.spec.key: run for run in runs}
    wanted, _ = specs(experiment, preset, done, so_far=True)
    seeds = set(experiment.seeds)
    return samples(done[spec.key] for spec in wanted if spec.key in done and spec.seed in seeds)


def grouped(
    found: Iterable[Sample], name: Callable[[Sample], str] = lambda sample: sample.one.label
) -> dict[str, list[Sample]]:
    """By method, or by another name, in the order in which they come."""
    groups: dict[str, list[Sample]] = {}
    for sample in found:
        groups.setdefault(name(sample), []).append(sample)
    return groups


def rates_vary(found: Sequence[Sample]) -> bool:
    """Whether a method was run with several learning rates on a task."""
    rates: dict[tuple[str, str], set[float]] = {}
    for sample in found:
        rates.setdefault((sample.one.spec.task, sample.one.label), set()).add(sample.one.spec.lr)
    return any(len(each) > 1 for each in rates.values())


@dataclass(frozen=True, kw_only=True)
class View:
    """What an experiment found on one of its tasks."""

    name: str
    task: str
    experiment: Experiment
    found: Sequence[Sample]

    @property
    def title(self) -> str:
        return f"{self.name}, {self.task}"


def views(preset: Preset, names: Sequence[str], runs: Sequence[Run]) -> list[View]:
    """Those that have figures."""
    result = []
    for name in names:
        experiment = preset.experiments[name]
        found = of_experiment(experiment, preset, runs)
        for task in experiment.tasks:
            here = [sample for sample in found if sample.one.spec.task == task]
            if here:
                result.append(View(name=name, task=task, experiment=experiment, found=here))
    return result
