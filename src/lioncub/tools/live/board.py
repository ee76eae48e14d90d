"""What a dashboard shows, gathered from events."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable

from lioncub.monitor.events import End, Event, Finding, Reading, Start
from lioncub.tools.reporting.units import bytes_text, seconds_text

HISTORY = 240
"""Readings that the lines over time show."""


class Board:
    """The state of a job as of its last event."""

    def __init__(self) -> None:
        self._begin(Start(time=0.0, worker=0, optimizer=""))

    def _begin(self, start: Start) -> None:
        self.start = start
        self.end: End | None = None
        self.history: deque[Reading] = deque(maxlen=HISTORY)
        self.findings: dict[str, Finding] = {}
        """The last of each signature."""
        self.num_findings: Counter[str] = Counter()
        """Of each signature."""
        self.abstentions: Counter[int] = Counter()
        """Steps in which each worker abstained."""
        self.best_loss: float | None = None

    def take(self, event: Event) -> None:
        if isinstance(event, Start):
            self._begin(event)
        elif isinstance(event, End):
            self.end = event
        elif isinstance(event, Finding):
            self.findings[event.signature] = event
            self.num_findings[event.signature] += 1
        else:
            self.history.append(event)
            if event.exchange is not None:
                self.abstentions.update(event.exchange.abstentions)
            if event.loss is not None and math.isfinite(event.loss):
                self.best_loss = event.loss if self.best_loss is None else min(self.best_loss, event.loss)

    @property
    def reading(self) -> Reading | None:
        return self.history[-1] if self.history else None

    def silence(self) -> float:
        """Seconds since the last event of a job that has not ended."""
        if self.end is not None:
            return 0.0
        return max(time.time() - (self.reading.time if self.reading else self.start.time), 0.0)

    def series(self, value: Callable[[Reading], float | None]) -> list[float]:
        """One figure over time, readings without it left out."""
        return [figure for reading in self.history if (figure := value(reading)) is not None]

    def abstained(self) -> str:
        """`worker 3 in 2 steps, worker 5 in 1 step`: the most frequent first; "" if none did."""
        counts = self.abstentions.most_common()
        return ", ".join(f"worker {worker} in {count:,} step{'s' if count > 1 else ''}" for worker, count in counts)


def line(board: Board, reading: Reading) -> str:
    """The figures in one line, for logs."""
    parts = [f"step {reading.step:,}"]
    if reading.loss is not None:
        parts.append(f"loss {reading.loss:.4g}")
    split = ", ".join(f"{part} {share:.0%}" for part, share in shares(reading).items())
    parts.append(f"{seconds_text(reading.seconds)} a step" + (f" ({split})" if split else ""))
    if reading.exchange is not None:
        parts.append(f"sent {bytes_text(reading.exchange.bytes_sent)}")
        if reading.exchange.agreement is not None:
            parts.append(f"agreement {reading.exchange.agreement:.1%}")
    if board.abstentions:
        parts.append(f"abstained: {board.abstained()}")
    return " · ".join(parts)


def shares(reading: Reading) -> dict[str, float]:
    """The parts of a step's time, as shares of it."""
    whole = max(reading.seconds, sum(reading.parts().values()), 1e-12)
    return {part: seconds / whole for part, seconds in reading.parts().items()}
