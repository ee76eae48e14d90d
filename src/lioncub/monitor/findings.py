"""Detectors of failing jobs. Each watches one signature and reports it once when it begins, with a remedy."""

from __future__ import annotations

import math
from collections import deque
from statistics import median

from lioncub.errors import ReplicasDifferError, name_ranks
from lioncub.monitor.events import Finding
from lioncub.stats import Stats

LOSS_WINDOW = 25
"""The loss is smoothed by the median of this many steps, which no single spike can move."""
LOSS_WARM_UP = 50
"""Steps before the loss is looked at."""
LOSS_PATIENCE = 50
"""Steps for which the loss must stay high, or be low again."""
LOSS_RISE = 0.1
"""A high loss is above its best by this share of what was gained so far plus what was left at best. For losses above
zero that is a tenth of the loss at the beginning."""
LOSS_NOISE = 4.0
"""It is also above its best by this many median deviations, as they were then: a diverging loss is noisy."""
LOSS_REMEDY = (
    "If a run with codec=Dense() does not diverge, quantisation is too coarse: take more bits, as in "
    'Levels(5, grid="float"). '
    "Otherwise, or first: a smaller lr, a longer warm-up."
)

WAIT_WARM_UP = 5
"""Steps before waiting is looked at: the first ones open connections and compile."""
WAIT_WINDOW = 20
"""The median of this many steps counts."""
WAIT_HIGH, WAIT_LOW = 0.5, 0.4
"""Shares of a step's time above which waiting dominates, and below which it no longer does."""
WAIT_CALM = 50
"""Steps for which the share must stay low before its rise is told again."""
WAIT_REMEDY = (
    "The network, or a worker slower than the others, sets the pace. Network: take fewer bits (Vote() sends 1 + 1 per "
    "parameter), larger batches or accumulation under no_sync(), overlap=True, a rarer MomentumSync. Worker: even out "
    "batches and machines."
)

REPLICAS_REMEDY = (
    "Something outside the optimizer wrote to the parameters, or memory is faulty: restart from a checkpoint, or copy "
    "a healthy worker's parameters with lioncub.broadcast_parameters()."
)


class LossWatch:
    """ "loss diverging": the smoothed loss is far above its best for long, or not finite."""

    signature = "loss diverging"

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=LOSS_WINDOW)
        self._num_steps = 0
        self._first = self._best = math.inf
        self._noise = 0.0
        self._high_steps = self._low_steps = 0
        self._told = False

    def see(self, step: int, loss: float) -> Finding | None:
        self._num_steps += 1
        if not math.isfinite(loss):
            return self.not_finite(step, f"the loss is {loss}")
        self._recent.append(loss)
        if len(self._recent) < LOSS_WINDOW:
            return None
        smooth = median(self._recent)
        self._first = smooth if math.isinf(self._first) else self._first
        if smooth < self._best:
            self._best, self._noise = smooth, median(abs(each - smooth) for each in self._recent)
        high = self._num_steps > LOSS_WARM_UP and self._is_high(smooth)
        self._high_steps = self._high_steps + 1 if high else 0
        self._low_steps = 0 if high else self._low_steps + 1
        if self._low_steps >= LOSS_PATIENCE:
            self._told = False
        if self._high_steps < LOSS_PATIENCE:
            return None
        return self._tell(step, f"for {LOSS_PATIENCE} steps far above its best, {self._best:.4g}; now {smooth:.4g}")

    def not_finite(self, step: int, message: str) -> Finding | None:
        """The loss, or too many gradients, are NaN or infinite."""
        self._low_steps = 0
        return self._tell(step, message)

    def _is_high(self, smooth: float) -> bool:
        rise = smooth - self._best
        gained_and_left = self._first - self._best + abs(self._best)
        return rise > max(LOSS_RISE * gained_and_left, LOSS_NOISE * self._noise)

    def _tell(self, step: int, message: str) -> Finding | None:
        if self._told:
            return None
        self._told = True
        return Finding(step=step, signature=self.signature, message=message, remedy=LOSS_REMEDY)


class WaitWatch:
    """ "waiting dominates": most of a step's time goes into waiting for the network."""

    signature = "waiting dominates"

    def __init__(self) -> None:
        self._shares: deque[float] = deque(maxlen=WAIT_WINDOW)
        self._num_steps = self._low_steps = 0
        self._told = False

    def see(self, step: int, seconds: float, stats: Stats) -> Finding | None:
        self._num_steps += 1
        if self._num_steps <= WAIT_WARM_UP or seconds <= 0 or not stats.bytes_sent + stats.bytes_received:
            return None
        self._shares.append(stats.seconds_waited / seconds)
        if len(self._shares) < WAIT_WINDOW:
            return None
        share = median(self._shares)
        self._low_steps = self._low_steps + 1 if share < WAIT_LOW else 0
        if self._low_steps >= WAIT_CALM:
            self._told = False
        if share <= WAIT_HIGH or self._told:
            return None
        self._told = True
        message = f"{share:.0%} of a step's time is spent waiting for other workers (median of {WAIT_WINDOW} steps)"
        return Finding(step=step, signature=self.signature, message=message, remedy=WAIT_REMEDY)


def replicas_differ(step: int, error: ReplicasDifferError) -> Finding:
    """ "replicas differ": the optimizer's own error, as a finding."""
    who = name_ranks(error.ranks) if error.ranks else "some workers"
    message = f"the parameters of {who} are not the same as the others'"
    return Finding(step=step, signature="replicas differ", message=message, remedy=REPLICAS_REMEDY, workers=error.ranks)
