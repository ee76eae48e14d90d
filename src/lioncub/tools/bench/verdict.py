"""What was asked of the kernels, and whether a run shows it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from lioncub.tools.bench import small_cases
from lioncub.tools.bench.kernel_cases import APPLY_ALONE, ENCODE_AHEAD, NAIVE
from lioncub.tools.bench.records import Record
from lioncub.tools.bench.step_cases import FUSED, LION, LION_PYTORCH, TWO_PHASE

RELATIONS = {"≥": operator.ge, ">": operator.gt, "<": operator.lt}


@dataclass(frozen=True)
class Verdict:
    """A figure that was asked for. ``measured`` is None where a run does not have it."""

    what: str
    threads: int
    measured: float | None
    relation: str
    required: float
    unit: str

    @property
    def met(self) -> bool:
        return self.measured is not None and bool(RELATIONS[self.relation](self.measured, self.required))


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """All that was asked for, for every number of threads that was measured."""
    return [
        verdict
        for threads in sorted({record.threads for record in records})
        for verdict in _verdicts(Results([record for record in records if record.threads == threads]), threads)
    ]


@dataclass(frozen=True)
class Results:
    """The records of one number of threads."""

    records: Sequence[Record]

    @property
    def body(self) -> str:
        """What CPU tensors get: native where it is there."""
        return "native" if any(record.body == "native" for record in self.records) else "torch"

    def figure(self, name: str, figure: Callable[[Record], float]) -> float | None:
        found = self.find(name)
        return None if found is None else figure(found)

    def find(self, name: str, body: str | None = None, model: str = "") -> Record | None:
        body = self.body if body is None else body
        wanted = (name, body, model)
        return next((each for each in self.records if (each.name, each.body, each.model) == wanted), None)

    def speedup(self, name: str, others: Sequence[str], body: str | None = None, model: str = "") -> float | None:
        """How many times as fast as the fastest of the others."""
        mine = self.find(name, body, model)
        theirs = [found.median_seconds for other in others if (found := self.find(other, "", model))]
        return min(theirs) / mine.median_seconds if mine and theirs else None


def _verdicts(results: Results, threads: int) -> Iterator[Verdict]:
    for name in ("encode_signs", ENCODE_AHEAD, "apply_, signs", APPLY_ALONE):
        percent = results.figure(name, lambda record: record.percent)
        yield Verdict(f"{name}: of the ceiling", threads, percent, "≥", 85, "%")
    for n, relation, required in ((2, ">", 100), (4, ">", 100), (8, ">", 100), (16, ">", 100), (32, "≥", 50)):
        name = f"majority of {n}, in cache"
        percent = results.figure(name, lambda record: record.read_percent)
        yield Verdict(f"{name}: against reading it from memory", threads, percent, relation, required, "%")
    yield from _speedups(results, threads)
    for name in (small_cases.ENCODE, small_cases.APPLY, small_cases.STEP):
        each = results.figure(name, lambda record: record.seconds_per_tensor * 1e6)
        yield Verdict(f"{name}: each", threads, each, "<", 5, "µs")


def _speedups(results: Results, threads: int) -> Iterator[Verdict]:
    naive = results.speedup("encode_signs", [NAIVE], body="torch")
    yield Verdict("encode_signs, torch body: against the naive form", threads, naive, "≥", 2, "x")
    model = "ResNet-50"
    whole = results.speedup(TWO_PHASE, [FUSED], model=model)
    yield Verdict(f"{TWO_PHASE} step, {model}: against {FUSED}", threads, whole, "≥", 1, "x")
    if threads == 1:
        whole = results.speedup(TWO_PHASE, LION_PYTORCH, model=model)
        yield Verdict(f"{TWO_PHASE} step, {model}: against lion-pytorch's best", threads, whole, "≥", 3, "x")
    for model in ("ResNet-50", "GPT-2 small"):
        plain = results.speedup(LION, [FUSED], model=model)
        yield Verdict(f"{LION}, {model}: against {FUSED}", threads, plain, "≥", 1.3, "x")
