"""Everything that changes files, one small operation each: the seam at which tests crash a save."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

Whole = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Digest = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
"""A SHA-256."""


@dataclass(frozen=True)
class Entry:
    """A file as it must be."""

    num_bytes: Whole
    sha256: Digest


def make_folders(path: Path) -> list[Path]:
    """A folder with those above it; returns the ones to sync before its name is safe. Others may make it as well."""
    if path.exists():
        return []
    unsafe = make_folders(path.parent)
    path.mkdir(exist_ok=True)
    return [*unsafe, path.parent]


def create(path: Path) -> io.FileIO:
    """A new file; one that exists is an error, never overwritten."""
    return io.FileIO(path, "x")


def write(file: io.FileIO, data: memoryview) -> None:
    while data:  # one call writes at most 2 GiB
        data = data[file.write(data) :]


def sync(file: io.FileIO) -> None:
    os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Make the names in a folder survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename(old: Path, new: Path) -> None:
    os.rename(old, new)


def unlink(path: Path) -> None:
    path.unlink(missing_ok=True)


def remove_folder(path: Path) -> None:
    path.rmdir()


def write_file(path: Path, parts: Iterable[memoryview]) -> Entry:
    """A new file, safely on disk when this returns."""
    digest, num_bytes = hashlib.sha256(), 0
    with create(path) as file:
        for part in parts:
            write(file, part)
            digest.update(part)
            num_bytes += len(part)
        sync(file)
    return Entry(num_bytes, digest.hexdigest())


def remove_tree(path: Path) -> None:
    """A folder with all that is in it; links are removed, not followed."""
    if path.is_symlink():
        return unlink(path)
    for inside in path.iterdir():
        if inside.is_dir() and not inside.is_symlink():
            remove_tree(inside)
        else:
            unlink(inside)
    return remove_folder(path)
