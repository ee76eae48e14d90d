"""Events in a file, one JSON object a line."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from lioncub.errors import ConfigError
from lioncub.monitor.events import End, Event, Finding, Reading, Start
from lioncub.records import from_line, to_line

KINDS: dict[str, type[Event]] = {"start": Start, "reading": Reading, "finding": Finding, "end": End}


class Records:
    """A sink: appends each event to a file, at once."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b")
        except OSError as problem:
            raise ConfigError(f"records cannot be written to {path}: {problem.strerror}") from problem
        if self._file.tell():
            self._file.seek(-1, 2)
            if self._file.read() != b"\n":  # a job was killed while it wrote its last line
                self._file.write(b"\n")

    def take(self, event: Event) -> None:
        self._file.write(to_json(event).encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def to_json(event: Event) -> str:
    """The event on one line. A loss that is not finite becomes null."""
    if isinstance(event, Reading) and event.loss is not None and not math.isfinite(event.loss):
        event = replace(event, loss=None)
    return to_line(next(kind for kind, cls in KINDS.items() if isinstance(event, cls)), event)


def from_json(line: str | bytes) -> Event:
    """The inverse of :func:`to_json`; ValueError for anything else."""
    return from_line(line, KINDS, "an event")
