"""The records of a benchmark: one JSON object a line, each with all settings on which its figures depend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lioncub.tools.bench.measure import Timing


@dataclass(frozen=True, kw_only=True)
class Record:
    """One case with one number of threads. Seconds are those of one call; a GB is 10^9 bytes."""

    group: str
    name: str
    body: str
    model: str
    threads: int
    num_tensors: int
    numel: int
    inputs: str  # "memory" or "cache"
    samples: int
    calls: int  # in a sample, at the most
    median_seconds: float
    lower_quartile_seconds: float
    upper_quartile_seconds: float
    bytes_read: int
    bytes_written: int
    gb_per_second: float
    ceiling: str  # the case that sets it
    ceiling_gb_per_second: float
    percent: float  # of the ceiling
    ratio_to: str
    ratio: float | None  # that case's time over this one's: above 1, this one is faster

    @property
    def seconds_per_tensor(self) -> float:
        return self.median_seconds / self.num_tensors


def records_of(timings: Sequence[Timing]) -> list[Record]:
    """Records of cases that were timed in turn, ceilings among them."""
    ceilings: dict[str, Timing] = {}
    for timing in timings:
        limit = timing.case.limit
        if timing.case.group == "ceiling":
            ceilings[limit] = max(ceilings.get(limit, timing), timing, key=lambda each: each.gb_per_second)
    seconds = {timing.case.name: timing.seconds for timing in timings if not timing.case.body}
    return [_record(timing, ceilings[timing.case.limit], seconds.get(timing.case.ratio_to)) for timing in timings]


def _record(timing: Timing, ceiling: Timing, other_seconds: float | None) -> Record:
    case, (lower, upper) = timing.case, timing.quartiles
    return Record(
        group=case.group,
        name=case.name,
        body=case.body,
        model=case.model,
        threads=timing.threads,
        num_tensors=case.num_tensors,
        numel=case.numel,
        inputs="cache" if case.warm else "memory",
        samples=len(timing.samples),
        calls=case.calls,
        median_seconds=timing.seconds,
        lower_quartile_seconds=lower,
        upper_quartile_seconds=upper,
        bytes_read=case.bytes_read,
        bytes_written=case.bytes_written,
        gb_per_second=timing.gb_per_second,
        ceiling=ceiling.case.name,
        ceiling_gb_per_second=ceiling.gb_per_second,
        percent=100 * timing.gb_per_second / ceiling.gb_per_second,
        ratio_to=case.ratio_to,
        ratio=other_seconds / timing.seconds if other_seconds else None,
    )
