"""Processes, from /proc: descendants, start times, namespaces."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterable
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Descendants whose parents end become children of this process, so that none is out of reach."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def status(pid: int) -> list[str]:
    """Fields 3 and on of ``/proc/PID/stat``: state, parent, …; empty where there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()  # a name may hold anything, parentheses too


def start_time(pid: int) -> int | None:
    """The start in clock ticks since boot, which with its number identifies a process for good. None: it has ended."""
    fields = status(pid)
    return int(fields[19]) if fields and fields[0] not in "ZX" else None


def descendants(ancestor: int) -> list[int]:
    """The living processes below one."""
    parents = {int(name): fields for name in os.listdir("/proc") if name.isdecimal() and (fields := status(int(name)))}
    found: list[int] = []
    ring = {ancestor}
    while ring:
        ring = {pid for pid, fields in parents.items() if int(fields[1]) in ring and fields[0] not in "ZX"}
        found += sorted(ring)
    return found


def kill_descendants(ancestor: int, number: signal.Signals = signal.SIGKILL) -> None:
    kill(descendants(ancestor), number)


def kill(pids: Iterable[int], number: signal.Signals = signal.SIGKILL) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def namespace_of(pid: int) -> str:
    """The identity of its network namespace; empty where the process has ended."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""
