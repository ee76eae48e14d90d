"""Events in a file, one JSON object a line."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lioncub.errors import ConfigError
from lioncub.monitor.events import End, Event, Exchange, Finding, Reading, Start
from lioncub.monitor.rules import EXCHANGE, RULES, check

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
    kind = next(kind for kind, cls in KINDS.items() if isinstance(event, cls))
    values = asdict(event)
    if isinstance(event, Reading) and event.loss is not None and not math.isfinite(event.loss):
        values["loss"] = None
    return json.dumps({"kind": kind, **values}, allow_nan=False)


def from_json(line: str | bytes) -> Event:
    """The inverse of :func:`to_json`; ValueError for anything else."""
    try:
        values: dict[str, Any] = json.loads(line, parse_constant=_refuse)
        kind = KINDS[values.pop("kind")]
        check(values, RULES[kind])
        if kind is Finding:
            values["workers"] = tuple(values["workers"])
        if kind is Reading and values["exchange"] is not None:
            exchange = values["exchange"]
            check(exchange, EXCHANGE)
            values["exchange"] = Exchange(**{**exchange, "abstentions": tuple(exchange["abstentions"])})
        return kind(**values)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise ValueError(f"not an event: {line[:80]!r}") from problem


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")
