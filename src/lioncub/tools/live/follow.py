"""A running job, followed through its file of records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from rich.console import Console

from lioncub.errors import ConfigError, LionCubError
from lioncub.monitor.events import End, Event
from lioncub.monitor.records import from_json
from lioncub.tools.live.dashboard import Dashboard

POLL_SECONDS = 0.5


class NotRecordsError(LionCubError):
    """A file that a monitor has not written."""


@dataclass(frozen=True, kw_only=True)
class LiveConfig:
    """Which job to follow."""

    records: Path

    def __post_init__(self) -> None:
        if not self.records.is_file():
            raise ConfigError(
                f"there is no file {self.records}: start the job with lioncub.live.Monitor(optimizer, "
                f'records="{self.records}"), then follow it'
            )


def run_live(config: LiveConfig, console: Console | None = None) -> None:
    """Show the job until it has ended or Ctrl-C is pressed."""
    dashboard = Dashboard(Console() if console is None else console)
    try:
        with config.records.open("rb") as file:
            for event in follow(file, idle=dashboard.draw):
                dashboard.take(event)
    except KeyboardInterrupt:
        pass
    finally:
        dashboard.close()


def follow(file: BinaryIO, idle: Callable[[], None]) -> Iterator[Event]:
    """The events of a file that grows, up to an end that nothing follows. ``idle()`` is called while there is no news.

    A line that is cut short belongs to a job that was killed: it is passed over.
    """
    begun, last, rest = False, None, b""
    while True:
        chunk = file.read()
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            try:
                last = from_json(line)
            except ValueError as problem:
                if not begun:
                    raise NotRecordsError(f"{file.name} is not a file of a monitor's records: {problem}") from problem
            else:
                begun = True
                yield last
        if isinstance(last, End):
            return
        if not chunk:
            idle()
            time.sleep(POLL_SECONDS)
