"""Files of a data set: read, recognised by size and SHA-256."""

from __future__ import annotations

import hashlib
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lioncub.tools.data.errors import DataDamagedError

Bytes = NDArray[np.uint8]
Files = Mapping[str, Bytes]
"""The contents of files by their names in the data set."""


@dataclass(frozen=True)
class DataFile:
    """What is published about a file."""

    name: str  # with "/", below the folder that holds the data set
    size: int
    sha256: str

    def damage(self, contents: Bytes) -> str:
        """How ``contents`` differ from the published ones; "" where they are the same."""
        if contents.size != self.size:
            return f"{contents.size:,} bytes instead of {self.size:,}"
        sha256 = hashlib.sha256(contents.data).hexdigest()
        return "" if sha256 == self.sha256 else f"SHA-256 {sha256[:12]}… instead of {self.sha256[:12]}…"


def as_bytes(data: bytes) -> Bytes:
    return np.frombuffer(bytearray(data), dtype=np.uint8)


def map_file(path: Path) -> Bytes:
    """A file's contents without reading it: processes share the pages, and what they write stays their own."""
    if not path.stat().st_size:
        return np.empty(0, dtype=np.uint8)
    return np.memmap(path, dtype=np.uint8, mode="c")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """What a damaged archive raises inside becomes an error that names ``path``."""
    try:
        yield
    except (
        OSError, EOFError, ValueError, KeyError, TypeError, StopIteration, OverflowError, RecursionError,
        struct.error, zlib.error, zipfile.BadZipFile, tarfile.TarError, NotImplementedError,
    ) as error:  # fmt: skip
        raise DataDamagedError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
