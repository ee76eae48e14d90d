"""Quantities as a reader wants them: three digits and a unit."""

from __future__ import annotations


def bytes_text(count: float) -> str:
    """`1.26 MB`, `39.4 kB`: decimal units."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= 0.9995 * size:  # what would be rounded up to 1,000 takes the next unit
            return f"{digits(count / size)} {unit}"
    return f"{count:.0f} B"


def seconds_text(seconds: float) -> str:
    """`1.26 s`, `39.4 ms`, `250 µs`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= 0.9995 * size:
            return f"{digits(seconds / size)} {unit}"
    return f"{seconds * 1e6:.0f} µs"


def rate_text(bytes_per_second: float) -> str:
    """`1.26 Gbit/s`, `39.4 Mbit/s`, `250 kbit/s`."""
    bits = 8 * bytes_per_second
    for unit, size in (("Gbit/s", 1e9), ("Mbit/s", 1e6)):
        if bits >= 0.9995 * size:
            return f"{digits(bits / size)} {unit}"
    return f"{bits / 1e3:.0f} kbit/s"


def digits(number: float) -> str:
    """`0.123`, `1.23`, `12.3`, `1,234`: three digits, or all of the whole part."""
    return f"{number:,.0f}" if abs(number) >= 99.95 else f"{number:.3g}"


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
