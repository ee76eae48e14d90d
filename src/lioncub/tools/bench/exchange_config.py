"""The settings of a run of ``lioncub bench exchange``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lioncub.errors import ConfigError
from lioncub.tools.lab.rates import Rate
from lioncub.tools.reporting.docs import Markers

MARKERS = Markers("exchange")


@dataclass(frozen=True, kw_only=True)
class ExchangeConfig:
    """The size of the model, the numbers of hosts, the rates, and the number of samples."""

    numel: int = 10_000_000
    hosts: tuple[int, ...] = (2, 4)
    rates: tuple[str, ...] = ("100mbit", "1gbit")
    repeats: int = 15
    out: Path = Path("bench-out")
    docs: Path | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.numel <= 10**9:
            raise ConfigError(f"numel must be between 1 and 10^9, got {self.numel}")
        if not self.hosts or not 2 <= min(self.hosts) <= max(self.hosts) <= 64:
            raise ConfigError(f"hosts must be numbers between 2 and 64, got {list(self.hosts)}")
        if self.repeats < 3:
            raise ConfigError(f"repeats must be at least 3, for a median, got {self.repeats}")
        if not self.rates:
            raise ConfigError("rates must name at least one, such as 100mbit")
        for rate in self.rates:
            Rate.parse(rate)
        if self.docs is not None:
            MARKERS.check(self.docs)

    @property
    def records(self) -> Path:
        return self.out / "exchange.jsonl"


@dataclass(frozen=True)
class ExchangeTask:
    """The settings of one host's process."""

    numel: int
    repeats: int
    interface: str
    answer: str
    """Where host 0 writes a line for each way."""
