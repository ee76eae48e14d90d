"""The registry of labs and scratch folders of this user, by which ``lioncub lab clean`` finds what killed ones left."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lioncub.records import from_json, to_json
from lioncub.tools.lab.errors import LabError
from lioncub.tools.lab.processes import descendants, start_time


def folder() -> Path:
    """The registry's folder, writable for this user only."""
    path = Path(tempfile.gettempdir()) / f"lioncub-lab-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink() or path.stat().st_uid != os.getuid():
        raise LabError(f"{path} belongs to someone else: set TMPDIR to a folder of your own")
    return path


@dataclass(frozen=True)
class Entry:
    """A lab: the process of its command, and the process that holds its namespaces."""

    owner: int
    owner_started: int | None
    holder: int
    holder_started: int | None

    @property
    def abandoned(self) -> bool:
        return start_time(self.owner) != self.owner_started

    @property
    def alive(self) -> bool:
        return self.holder_started is not None and start_time(self.holder) == self.holder_started


@contextmanager
def registered(holder: int) -> Iterator[None]:
    """Keep a lab in the registry while the block runs."""
    entry = Entry(os.getpid(), start_time(os.getpid()), holder, start_time(holder))
    path = folder() / f"{holder}.json"
    new = path.with_suffix(".new")
    new.write_text(to_json(entry))
    new.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is removed after the block, or by the next :func:`clean` if this process is killed."""
    prefix = f"scratch-{os.getpid()}-{start_time(os.getpid())}-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=folder()) as path:
        yield Path(path)


def clean(*, dry_run: bool = False) -> list[str]:
    """End and unregister the labs whose owner has ended. Returns a line for each thing that was or would be done."""
    return [*_clean_labs(dry_run), *_clean_scratch(dry_run)]


def _clean_labs(dry_run: bool) -> list[str]:
    lines = []
    would = "would have " if dry_run else ""
    for path in sorted(folder().glob("*.json")):
        try:
            entry = from_json(path.read_bytes(), Entry)
        except ValueError:
            lines.append(f"{would}removed {path.name}, which could not be read")
            if not dry_run:
                path.unlink(missing_ok=True)
            continue
        if not entry.abandoned:
            lines.append(f"left the lab of process {entry.owner} alone: it is running")
            continue
        if entry.alive:
            lines.append(f"{would}ended the lab that process {entry.owner} left behind")
        if dry_run:
            continue
        if entry.alive:
            for pid in [*descendants(entry.holder), entry.holder]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        path.unlink(missing_ok=True)
    return lines


def _clean_scratch(dry_run: bool) -> list[str]:
    lines = []
    for path in sorted(folder().glob("scratch-*-*-*")):
        _, owner, started, _ = path.name.split("-", 3)
        if owner.isdecimal() and str(start_time(int(owner))) != started:
            lines.append(f"{'would have ' if dry_run else ''}removed the scratch folder of process {owner}")
            if not dry_run:
                shutil.rmtree(path, ignore_errors=True)
    return lines
