"""Archives, read in memory and no further than what is published is long: some expand a thousandfold."""

from __future__ import annotations

import gzip
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

from lioncub.tools.data.errors import DataDamagedError

SLACK_BYTES = 1 << 24
"""What an archive may hold beside the published files, and a compressed file be longer than its contents."""


ENCRYPTED = 1
"""Among the flags of a file in a zip."""


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def read_at_most(file: Readable, most_bytes: int, name: str) -> bytes:
    """All of a file, which must not be longer."""
    data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise DataDamagedError(f"{name} holds more than the {most_bytes:,} bytes that are published")
    return data


def read_gzip(file: IO[bytes] | Path, most_bytes: int, name: str) -> bytes:
    with gzip.open(file) as unpacked:
        return read_at_most(unpacked, most_bytes, name)


def read_zip(path: Path, member: str, most_bytes: int) -> bytes:
    with zipfile.ZipFile(path) as archive:
        found = archive.getinfo(member)
        if found.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # the others unpack a piece at once
            raise DataDamagedError(f"{path} is compressed by method {found.compress_type}, the published file is not")
        if found.flag_bits & ENCRYPTED:
            raise DataDamagedError(f"{path} is encrypted, the published file is not")
        with archive.open(found) as file:
            return read_at_most(file, most_bytes, f"{path}: {member}")


class Tar:
    """A ``.tar.gz``, its members read in their order."""

    def __init__(self, path: Path, archive: tarfile.TarFile) -> None:
        self._path, self._archive = path, archive

    def __iter__(self) -> Iterator[tuple[str, IO[bytes]]]:
        """Names and contents of the files. Those contents are readable until the next one is asked for."""
        while (member := self._archive.next()) is not None:
            # Else the names of very many empty files would fill the memory.
            self._archive.members.clear()  # type: ignore[attr-defined]
            if member.isreg() and (file := self._archive.extractfile(member)):
                yield member.name, file

    def read(self, wanted: dict[str, int]) -> dict[str, bytes]:
        """These files, none longer than so many bytes."""
        found = {}
        for name, file in self:
            if name in wanted and name not in found:
                found[name] = read_at_most(file, wanted[name], f"{self._path}: {name}")
                if len(found) == len(wanted):
                    return found
        raise DataDamagedError(f"{self._path} has no {min(set(wanted) - set(found))}")


@contextmanager
def open_tar(path: Path, most_bytes: int) -> Iterator[Tar]:
    """Of a ``.tar.gz`` that unpacked has no more than so many bytes."""
    with gzip.open(path) as unpacked:
        limited: Any = Limited(unpacked, most_bytes, path)
        with tarfile.open(fileobj=limited, mode="r:") as archive:
            yield Tar(path, archive)


class Limited:
    """A stream that nobody gets beyond so many bytes of. What a tar's head says is long is read at once otherwise."""

    def __init__(self, file: gzip.GzipFile, most_bytes: int, path: Path) -> None:
        self._file, self._most_bytes, self._path = file, most_bytes, path

    def read(self, size: int) -> bytes:
        self._check(self._file.tell() + size)
        return self._file.read(size)

    def seek(self, place: int) -> int:
        self._check(place)
        return self._file.seek(place)

    def tell(self) -> int:
        return self._file.tell()

    def _check(self, end: int) -> None:
        if end > self._most_bytes:
            raise DataDamagedError(
                f"{self._path} holds more than {self._most_bytes:,} bytes, the published one does not"
            )
