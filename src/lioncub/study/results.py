"""Runs beside one another: means over seeds, with their standard errors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from lioncub.study.plan import specs
from lioncub.study.presets import Experiment, Preset
from lioncub.study.records import Run
from lioncub.study.tasks import TASKS


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
        values = self.qualities
        return stdev(values) / math.sqrt(len(values)) if not self.failed and len(values) > 1 else None

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
    def bits(self) -> float:
        return self.bits_up + self.bits_down

    def better_than(self, other: Sample) -> float | None:
        """By how much of the task's unit, larger being better; None where one of them failed."""
        if self.quality is None or other.quality is None:
            return None
        gain = self.quality - other.quality
        return gain if TASKS[self.one.spec.task].higher_is_better else -gain

    def within_one_error(self, other: Sample) -> bool | None:
        """Whether it is no worse than ``other`` by more than one standard error of their difference."""
        gain = self.better_than(other)
        if gain is None or self.error is None or other.error is None:
            return None
        return gain >= -math.hypot(self.error, other.error)


def samples(runs: Iterable[Run]) -> list[Sample]:
    """In the order in which the runs come."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(replace(run.spec, seed=0).key, []).append(run)
    return [Sample(tuple(sorted(members, key=lambda run: run.spec.seed))) for members in found.values()]


def of_experiment(experiment: Experiment, preset: Preset, runs: Sequence[Run]) -> list[Sample]:
    """The experiment's samples as far as they are made, without the searches."""
    done = {run.spec.key: run for run in runs}
    wanted, _ = specs(experiment, preset, done)
    seeds = set(experiment.seeds)
    return samples(done[spec.key] for spec in wanted if spec.key in done and spec.seed in seeds)
