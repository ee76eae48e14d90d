"""Figures as people read them, and link rates as figures."""

from __future__ import annotations

import re

BITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "ki": 2.0**10, "mi": 2.0**20, "gi": 2.0**30, "ti": 2.0**40}


def bytes_text(count: float) -> str:
    """`1.26 MB`, `39.4 kB`: three digits and a decimal unit."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


def digits(number: float) -> str:
    """`0.123`, `1.23`, `12.3`, `1,234`: three digits, or all of the whole part."""
    return f"{number:,.0f}" if abs(number) >= 99.95 else f"{number:.3g}"


def bits_per_second(rate: str) -> float | None:
    """What tc means by ``100mbit`` or ``2.5Gbit``; None where it is something else."""
    found = re.fullmatch(r"([0-9]*\.?[0-9]+)([kmgt]i?|)bit", rate.strip().lower())
    return float(found[1]) * BITS[found[2]] if found else None
