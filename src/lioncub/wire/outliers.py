"""How often each worker's votes agree with the outcome: who stands apart has a faulty machine, or quite other data.

Every header carries its sender's agreement at the step before, so that all workers know all of them for two bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

SCALE = 65_534
UNKNOWN = 65_535
"""Of a worker that did not vote."""
MEMORY = 32
"""Steps: a rate is their running mean, and nobody is suspected before."""
MARGIN = 0.02
"""A suspect agrees less often than the median of all by this, and by six times their usual distance from it."""


def to_wire(agreement: float) -> int:
    return UNKNOWN if math.isnan(agreement) else round(agreement * SCALE)


def from_wire(number: int) -> float:
    return math.nan if number == UNKNOWN else number / SCALE


class AgreementRates:
    """The running mean of every worker's agreement."""

    def __init__(self, num_workers: int) -> None:
        self._rates = [math.nan] * num_workers
        self._steps = 0
        self.unanimous_steps = 0
        """So many steps in a row all workers have agreed with the outcome on every element."""

    @property
    def rates(self) -> tuple[float, ...]:
        return tuple(self._rates)

    def note(self, agreements: Sequence[float]) -> None:
        """One step's agreements, by worker; NaN where a worker did not vote."""
        self._steps += 1
        self.unanimous_steps = self.unanimous_steps + 1 if all(each == 1.0 for each in agreements) else 0
        for worker, agreement in enumerate(agreements):
            rate = self._rates[worker]
            if math.isnan(rate):
                self._rates[worker] = agreement
            elif not math.isnan(agreement):
                self._rates[worker] = rate + (agreement - rate) / MEMORY

    def suspects(self) -> tuple[int, ...]:
        """Workers that stand apart. Of two, nobody can say which."""
        known = [rate for rate in self._rates if not math.isnan(rate)]
        if self._steps < MEMORY or len(known) < 3:
            return ()
        usual = median(known)
        distance = median(abs(rate - usual) for rate in known)
        limit = usual - max(MARGIN, 6 * distance)
        return tuple(worker for worker, rate in enumerate(self._rates) if rate < limit)
