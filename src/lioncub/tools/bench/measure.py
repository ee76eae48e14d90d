"""Timing of cases in turn, so that a change of the machine's speed affects all of them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median, quantiles
from time import perf_counter

import torch

from lioncub.tools.bench.cases import Case

SAMPLE_SECONDS = 0.25
"""After it no further call begins: only what is far from the memory's speed takes so long."""


@dataclass(frozen=True)
class Timing:
    """A case's samples, in seconds per call."""

    case: Case
    threads: int
    samples: tuple[float, ...]

    @property
    def seconds(self) -> float:
        return median(self.samples)

    @property
    def quartiles(self) -> tuple[float, float]:
        lower, _, upper = quantiles(self.samples, n=4, method="inclusive")
        return lower, upper

    @property
    def gb_per_second(self) -> float:
        return (self.case.bytes_read + self.case.bytes_written) / self.seconds / 1e9


def measure(cases: Sequence[Case], threads: int, repeats: int, on_sample: Callable[[], object]) -> list[Timing]:
    """``repeats`` samples of every case, one of each in turn, after a turn that is not counted."""
    samples: list[list[float]] = [[] for _ in cases]
    with quiet(threads):
        for _ in range(repeats + 1):
            for taken, case in zip(samples, cases, strict=True):
                taken.append(sample(case))
                on_sample()
    return [Timing(case, threads, tuple(taken[1:])) for case, taken in zip(cases, samples, strict=True)]


def pooled(rounds: Sequence[Sequence[Timing]]) -> list[Timing]:
    """The samples of all rounds together."""
    return [
        replace(timings[0], samples=tuple(each for timing in timings for each in timing.samples))
        for timings in zip(*rounds, strict=True)
    ]


def sample(case: Case) -> float:
    """Seconds per call, over the case's calls or as many as fit in the time a sample has."""
    with case.where():
        if case.warm:  # caches and clocks settle
            _time(case, max(1, case.calls // 4), SAMPLE_SECONDS / 4)
        return _time(case, case.calls, SAMPLE_SECONDS)


def _time(case: Case, calls: int, most_seconds: float) -> float:
    start = perf_counter()
    for number in range(calls):
        case.run(number)
        if (elapsed := perf_counter() - start) > most_seconds:
            break
    return elapsed / (number + 1)


@contextmanager
def quiet(threads: int) -> Iterator[None]:
    """So many threads, no gradients recorded, no garbage collected."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    gc.collect()
    gc.disable()
    try:
        with torch.no_grad():
            yield
    finally:
        gc.enable()
        torch.set_num_threads(before)
