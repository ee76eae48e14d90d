"""What a search finds for a method on a task."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """What is searched."""

    lr: float
    decay: float = 1.0
    """Times the task's."""
    memory: str = ""
    """How long averages remember; empty: what the method comes with."""
    rise: float = 0.05
    """The part of the steps in which the schedule rises."""
