"""How much memory the process has in use, as Linux counts it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")


def peak_bytes() -> int | None:
    """The most that was in use since the start, or since :func:`reset_peak`."""
    return _status("VmHWM")


def reset_peak() -> None:
    """Forget the peak, where the system allows it."""
    with suppress(OSError):
        CLEAR.write_text("5", encoding="ascii")


def _status(field: str) -> int | None:
    try:
        lines = STATUS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:")), None)
