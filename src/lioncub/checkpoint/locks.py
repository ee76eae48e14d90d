"""A lock on the record of a folder's owner: the system takes it away when the processes that hold it have ended.

The worker that comes first takes it alone, writes the record, and goes on to share it; workers of the same job, which
find the job's name in the record, share it too. Nobody else can take it while any of them lives.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from dataclasses import dataclass
from pathlib import Path

from lioncub.checkpoint.owner import RECORD_BYTES, Owner

UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}
"""What file systems without locks answer."""
_FLOCK = struct.Struct("hhqqi4x")
"""``struct flock`` where addresses have 64 bits."""


@dataclass(frozen=True)
class Lock:
    """A share of the lock that this process holds."""

    path: Path
    job: str
    descriptor: int

    def close(self) -> None:
        os.close(self.descriptor)

    def after_fork(self) -> None:
        """In a child process: a copy of the descriptor would keep the lock when its parent has ended."""
        os.close(self.descriptor)


def take_lock(path: Path, owner: Owner) -> Lock | None:
    """A share of the lock, or None while another job has it. Raises OSError where there are no locks."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if set_lock(descriptor, fcntl.F_WRLCK):
            os.pwrite(descriptor, owner.to_bytes(), 0)
            os.ftruncate(descriptor, RECORD_BYTES)
            taken = set_lock(descriptor, fcntl.F_RDLCK)
        else:
            there = Owner.read(path)
            taken = there is not None and there.job == owner.job and set_lock(descriptor, fcntl.F_RDLCK)
    except BaseException:
        os.close(descriptor)
        raise
    if not taken:
        os.close(descriptor)
        return None
    return Lock(path, owner.job, descriptor)


def set_lock(descriptor: int, kind: int) -> bool:
    """Whether it could be had at once.

    A lock of the open file, not of the process: those are lost when the process closes any file of that name, as
    whoever copies the folder does.
    """
    if not hasattr(fcntl, "F_OFD_SETLK"):
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0))
    except OSError as problem:
        if problem.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True
