"""The interface of sinks."""

from __future__ import annotations

from typing import Protocol

from lioncub.monitor.events import Event


class Sink(Protocol):
    """Receives events. A sink that raises is dropped; training goes on."""

    def take(self, event: Event) -> None: ...

    def close(self) -> None: ...
