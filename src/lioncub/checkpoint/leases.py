"""Where a file system has no locks: an owner's record with a number that it counts up as long as it lives.

A record is out of date if its process is known to have ended, or if its number stays the same for as long as a lease:
no clocks are compared. An owner that was stopped for longer may lose the folder, and finds another record there.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from lioncub.checkpoint.owner import Owner

LEASE_SECONDS = 30.0
BEAT_SECONDS = 5.0

_seen: dict[Path, tuple[Owner | None, float]] = {}
"""The records of others, and since when they have been as they are."""


class Lease:
    """A folder that belongs to this process's job."""

    def __init__(self, path: Path, owner: Owner) -> None:
        self.path, self.job = path, owner.job
        self._owner = owner
        self._ended = threading.Event()
        threading.Thread(target=self._beat, name=f"lioncub owns {path.parent}", daemon=True).start()

    def close(self) -> None:
        self._ended.set()
        with suppress(OSError):
            if (there := Owner.read(self.path)) and there.is_same_process(self._owner):
                self.path.unlink()

    def after_fork(self) -> None:
        """In a child process, which has no thread that counts."""

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            there = Owner.read(self.path)
            if there is None or there.job != self.job:
                return  # the folder has gone, or belongs to another job
            if there.is_same_process(self._owner) or there.is_gone:
                self._owner = self._owner.with_next_beat()
                with suppress(OSError):  # a disk that is full for a while
                    write_record(self.path, self._owner)


def take_lease(path: Path, owner: Owner) -> Lease | None:
    """A lease, or None while another job may have one: call again."""
    there = Owner.read(path)
    if there is not None and there.job != owner.job and not (there.is_gone or _has_run_out(path, there)):
        return None
    if there is None or there.job != owner.job:
        write_record(path, owner)
    _seen.pop(path, None)
    return Lease(path, owner)


def _has_run_out(path: Path, there: Owner) -> bool:
    known, since = _seen.get(path, (None, 0.0))
    if known != there:
        _seen[path] = there, time.monotonic()
        return False
    return time.monotonic() - since > LEASE_SECONDS


def write_record(path: Path, owner: Owner) -> None:
    """In one piece: whoever reads sees the old record or this one."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
    draft.write_bytes(owner.to_bytes())
    os.replace(draft, path)
