"""A folder of checkpoints belongs to one job at a time: to all its workers, until the last of them has ended."""

from __future__ import annotations

import os
import secrets
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

from lioncub.checkpoint import disk
from lioncub.checkpoint.consensus import Consensus
from lioncub.checkpoint.leases import Lease, take_lease
from lioncub.checkpoint.locks import UNSUPPORTED, Lock, take_lock
from lioncub.checkpoint.owner import Owner
from lioncub.checkpoint.writing import explained
from lioncub.errors import CheckpointInUseError, CheckpointWarning

PATIENCE_SECONDS = 40.0
"""How long a job waits for a folder that another one has: longer than workers whose launcher is gone may live."""
POLL_SECONDS = 0.05
WARN_SECONDS = 2.0
MOST_FOLDERS = 16
"""How many folders a process holds. One that saves to more gives up that which it has not used for longest."""

_held: dict[Path, Lock | Lease] = {}


def owner_file(directory: Path) -> Path:
    return directory / ".owner"


def claim(directory: Path, consensus: Consensus, held_for: Sequence[str] | None = None) -> list[Path]:
    """Make the folder this job's, on all workers or on none. All of them call it together.

    Args:
        held_for: :func:`job_of` on every worker, where that is known already.

    Returns what is to be synced before the folder's name is safe.

    Raises:
        CheckpointInUseError: another job has the folder, and still had it after a while.
    """
    if held_for is None:
        held_for = consensus.require_all(lambda: job_of(directory), str)[1]
    if held_for[0] and len(set(held_for)) == 1:
        return []
    job = next(filter(None, held_for), "") or consensus.gather(secrets.token_hex(8))[0]
    owner = Owner.here(job, consensus.worker)
    started, warned = time.monotonic(), False
    unsafe: list[Path] = []

    def tell(problem: str) -> tuple[str, float]:
        return problem, time.monotonic() - started

    while True:
        _, answers = consensus.require_all(lambda: _attempt(directory, owner, unsafe), tell)
        if not (problems := [problem for problem, _ in answers if problem]):
            return unsafe
        seconds = answers[0][1]  # one worker's clock: all have to end in the same round
        if seconds > PATIENCE_SECONDS:
            release(directory)
            raise CheckpointInUseError(f"{problems[0]}. It still had it after {seconds:.0f} s")
        if seconds > WARN_SECONDS and not warned:
            warned = True
            warnings.warn(f"waiting for {PATIENCE_SECONDS:.0f} s: {problems[0]}", CheckpointWarning, stacklevel=3)
        time.sleep(POLL_SECONDS)


def job_of(directory: Path) -> str:
    """The job for which this process holds the folder; nothing if it does not.

    Raises :class:`CheckpointInUseError` if another job has taken it from this one.
    """
    key = _key(directory)
    if (held := _held.pop(key, None)) is None:
        return ""
    there = Owner.read(held.path)
    if there is None:  # somebody has removed the folder
        held.close()
        return ""
    _held[key] = held  # the last that was used
    if there.job != held.job:
        raise CheckpointInUseError(f"{_explanation(directory, there)}. It has taken it from this job")
    return held.job


def release(directory: str | os.PathLike[str]) -> None:
    """Let another job have the folder before this process ends. On every worker; not while a save is going on."""
    if held := _held.pop(_key(Path(directory)), None):
        held.close()


def _attempt(directory: Path, owner: Owner, unsafe: list[Path]) -> str:
    """Try once. Returns what stands in the way, or nothing."""
    key, path = _key(directory), owner_file(directory)
    if (held := _held.get(key)) and held.job == owner.job:
        return ""
    release(directory)
    with explained(directory):
        unsafe += disk.make_folders(directory)
        taken = _take(path, owner)
    if taken is None:
        return _explanation(directory, Owner.read(path))
    if len(_held) >= MOST_FOLDERS:
        _held.pop(next(iter(_held))).close()
    _held[key] = taken
    return ""


def _take(path: Path, owner: Owner) -> Lock | Lease | None:
    try:
        return take_lock(path, owner)
    except OSError as problem:
        if problem.errno not in UNSUPPORTED:
            raise
    return take_lease(path, owner)


def _explanation(directory: Path, there: Owner | None) -> str:
    return (
        f"{directory} belongs to {there or 'another job'}: a folder of checkpoints is for one job at a time. End that "
        "process if its job is over, or give this job a folder of its own"
    )


def _key(directory: Path) -> Path:
    return Path(os.path.realpath(directory))


def _after_fork() -> None:
    for held in _held.values():
        held.after_fork()
    _held.clear()


os.register_at_fork(after_in_child=_after_fork)
