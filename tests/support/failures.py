"""Failures that a test asks for."""

from __future__ import annotations

from dataclasses import dataclass, field


class InjectedFailure(Exception):  # noqa: N818
    """What a worker raises where a test wants it to fail."""


@dataclass
class Failures:
    """Where workers fail: each failure happens once."""

    planned: set[tuple[int, int]] = field(default_factory=set)

    def fail_at(self, rank: int, step: int) -> Failures:
        self.planned.add((rank, step))
        return self

    def check(self, rank: int, step: int) -> None:
        if (rank, step) in self.planned:
            self.planned.remove((rank, step))
            raise InjectedFailure(f"worker {rank}, step {step}")
