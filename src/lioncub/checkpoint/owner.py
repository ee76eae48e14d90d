"""The record in a folder of checkpoints that says which job it belongs to."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from lioncub.records import from_json, to_json

RECORD_BYTES = 1024
"""Always the same length: a record is overwritten in place, which needs no room on a full disk."""


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The worker that wrote the record, for all workers of its job that share the folder."""

    job: str
    """A random name, the same on all workers of a job, new each time it starts."""
    worker: int
    host: str
    process: int
    machine: str
    """Boot and process namespace: where ``process`` means the same process."""
    started: str
    """When the process started, in the kernel's count: its number may be used again."""
    since: str
    beat: int = 0
    """Counted up by an owner that has a lease and no lock."""

    @classmethod
    def here(cls, job: str, worker: int) -> Owner:
        """This process."""
        return cls(
            job=job,
            worker=worker,
            host=socket.gethostname(),
            process=os.getpid(),
            machine=_machine(),
            started=_started(os.getpid()),
            since=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        )

    @classmethod
    def read(cls, path: Path) -> Owner | None:
        """None if there is no record, or it is being written, or it is something else."""
        try:
            return from_json(path.read_bytes()[:RECORD_BYTES], cls)
        except (OSError, ValueError):
            return None

    def to_bytes(self) -> bytes:
        return to_json(self).encode().ljust(RECORD_BYTES)

    def is_same_process(self, other: Owner) -> bool:
        return replace(self, job=other.job, worker=other.worker, since=other.since, beat=other.beat) == other

    def with_next_beat(self) -> Owner:
        return replace(self, beat=self.beat + 1)

    @property
    def is_gone(self) -> bool:
        """Whether its process has ended, as far as can be told here: False for one on another machine."""
        if not self.machine or self.machine != _machine():
            return False
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return _started(self.process) not in ("", self.started)

    def __str__(self) -> str:
        return f"worker {self.worker} of another job, process {self.process} on {self.host!r}, since {self.since!r}"


@cache
def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _started(process: int) -> str:
    """Empty if it cannot be known; the processes of other users may be hidden."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return ""
    state, *rest = status.rpartition(")")[2].split()
    return "ended" if state in "ZX" else rest[18]
