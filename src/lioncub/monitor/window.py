"""The aggregation of steps into a reading."""

from __future__ import annotations

import math
import time
from statistics import fmean

from lioncub.monitor.events import Exchange, Reading
from lioncub.stats import Stats


class Window:
    """Collects steps until a reading is taken from them."""

    def __init__(self) -> None:
        self._last_step = -1
        self._seconds: list[float] = []
        self._losses: list[float] = []
        self._stats: list[Stats] = []

    def __len__(self) -> int:
        return len(self._seconds)

    @property
    def seconds(self) -> float:
        """The seconds of all steps."""
        return sum(self._seconds)

    def add(self, step: int, seconds: float, loss: float | None, stats: Stats | None) -> None:
        self._last_step = step
        self._seconds.append(seconds)
        if loss is not None:
            self._losses.append(loss)
        if stats is not None:
            self._stats.append(stats)

    def reading(self) -> Reading:
        """The reading of the steps, of which there is at least one."""
        return Reading(
            time=time.time(),
            step=self._last_step,
            num_steps=len(self),
            seconds=fmean(self._seconds),
            loss=fmean(self._losses) if self._losses else None,
            exchange=_exchange(self._stats) if self._stats else None,
        )


def _exchange(steps: list[Stats]) -> Exchange:
    agreements = [stats.agreement for stats in steps if not math.isnan(stats.agreement)]
    return Exchange(
        seconds_encoding=fmean(stats.seconds_encoding for stats in steps),
        seconds_waited=fmean(stats.seconds_waited for stats in steps),
        seconds_applying=fmean(stats.seconds_applying for stats in steps),
        bytes_sent=fmean(stats.bytes_sent for stats in steps),
        bytes_received=fmean(stats.bytes_received for stats in steps),
        bits_per_parameter=fmean(stats.bits_per_parameter for stats in steps),
        agreement=fmean(agreements) if agreements else None,
        voters=min(stats.voters for stats in steps),
        abstentions=tuple(sorted(worker for stats in steps for worker in stats.abstentions)),
    )
