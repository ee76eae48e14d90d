"""Where events go."""

from __future__ import annotations

from typing import Protocol

from lioncub.monitor.events import Event


class Sink(Protocol):
    """Takes events. What it raises drops it; training goes on."""

    def take(self, event: Event) -> None: ...

    def close(self) -> None: ...
