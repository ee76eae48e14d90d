"""What `lioncub data` is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lioncub.errors import ConfigError

NAMES = ("enwik8", "cifar10", "stdlib")


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Data sets to get; none: list what is there."""

    names: tuple[str, ...] = ()
    folder: Path | None = None  # looked into before anything is downloaded
    cache: Path | None = None  # None: the user's cache folder

    def __post_init__(self) -> None:
        if unknown := [name for name in self.names if name not in NAMES]:
            raise ConfigError(f"there is no data set {unknown[0]!r}: choose from {', '.join(NAMES)}")
        if self.folder is not None and not self.folder.is_dir():
            raise ConfigError(f"folder must be a directory, but {self.folder} is not")
        if self.folder is not None and not self.names:
            raise ConfigError(f"say which data sets to take from {self.folder}: {', '.join(NAMES[:2])}")
        if self.cache is not None and self.cache.exists() and not self.cache.is_dir():
            raise ConfigError(f"cache must be a directory, but {self.cache} is a file")
