"""The rate of a link, and the arguments of ``tc`` for it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lioncub.errors import ConfigError

UNITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
PATTERN = re.compile(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit)", re.IGNORECASE)
LEAST, MOST = 10**5, 10**11
BURST_BYTES = 128 << 10  # half of it loses a 1 Gbit link, eight times as much flatters small messages
FAST = 5 * 10**8


@dataclass(frozen=True)
class Rate:
    """So many bits a second, in both directions of a link."""

    bits_per_second: int

    @classmethod
    def parse(cls, text: str) -> Rate:
        """``100mbit``, ``1gbit``, ``2.5gbit``."""
        found = PATTERN.fullmatch(text.strip())
        if found is None:
            raise ConfigError(f"{text!r} is no rate: write it like 100mbit, 1gbit or 2.5gbit")
        rate = cls(round(float(found[1]) * UNITS[found[2].lower()]))
        if not LEAST <= rate.bits_per_second <= MOST:
            raise ConfigError(f"{text!r} is out of range: a link has 100kbit to 100gbit")
        return rate

    def __str__(self) -> str:
        for unit, size in reversed(UNITS.items()):
            if self.bits_per_second >= size:
                return f"{self.bits_per_second / size:.6g}{unit}"
        return f"{self.bits_per_second}bit"

    def shaping(self) -> list[str]:
        """The arguments of ``tc qdisc add dev …`` that make an interface this slow."""
        burst = max(BURST_BYTES, self.bits_per_second // 8 // 1000)  # a millisecond of a faster link
        latency = "20ms" if self.bits_per_second >= FAST else "200ms"
        return ["root", "tbf", "rate", f"{self.bits_per_second}bit", "burst", str(burst), "latency", latency]
