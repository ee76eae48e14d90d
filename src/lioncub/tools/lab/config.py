"""The settings of a lab."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from lioncub.errors import ConfigError
from lioncub.tools.lab.rates import Rate

MAX_HOSTS = 150
UNSHAPED = "none"


@dataclass(frozen=True, kw_only=True)
class LabConfig:
    """Hosts, their links, and the command that each of them runs."""

    command: tuple[str, ...]
    """A script (``train.py …``) or module (``-m package …``) runs under torchrun; anything else as it stands."""
    hosts: int = 4
    rate: str = "1gbit"
    """The rate of every link, both ways; ``none``: unshaped."""
    host_rates: tuple[str, ...] = ()
    """``2=100mbit``: the link of host 2 has a rate of its own."""
    workers_per_host: int = 1
    counters: Path | None = None
    """The JSON file for the bytes that crossed each host's link."""
    dry_run: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.hosts <= MAX_HOSTS:
            raise ConfigError(f"hosts must be 1 to {MAX_HOSTS}, got {self.hosts}")
        if self.workers_per_host < 1:
            raise ConfigError(f"workers_per_host must be at least 1, got {self.workers_per_host}")
        if not self.command:
            raise ConfigError(
                "no command: say what the hosts run after --, as in `lioncub lab -- train.py --steps 100`"
            )
        if self.counters is not None:
            check_writable(self.counters)
        self.rates()

    def rates(self) -> list[Rate | None]:
        """The rate of each host's link; None where it is not shaped."""
        rates = [parse_rate(self.rate)] * self.hosts
        named = [text.partition("=")[0] for text in self.host_rates]
        if len(set(named)) < len(named):
            raise ConfigError(f"host rates {', '.join(self.host_rates)}: one for each host, not two")
        for text in self.host_rates:
            host, equals, rate = text.partition("=")
            if not equals or not host.isdecimal():
                raise ConfigError(f"host rate {text!r}: write it like 2=100mbit, host 2 of 0..{self.hosts - 1}")
            if int(host) >= self.hosts:
                raise ConfigError(f"host rate {text!r}: there is no host {host}, they are 0..{self.hosts - 1}")
            rates[int(host)] = parse_rate(rate)
        return rates


def parse_rate(text: str) -> Rate | None:
    return None if text.lower() == UNSHAPED else Rate.parse(text)


def check_writable(counters: Path) -> None:
    """Before the hosts run, not after."""
    if not counters.absolute().parent.is_dir():
        raise ConfigError(f"counters: there is no folder {counters.parent}")
    if counters.is_dir() or not os.access(counters if counters.exists() else counters.absolute().parent, os.W_OK):
        raise ConfigError(f"counters: {counters} is a folder, or may not be written to; name a file")
