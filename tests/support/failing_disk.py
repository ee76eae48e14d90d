"""A disk that fails at a chosen operation, as a crash or as a power cut."""

from __future__ import annotations

import io
import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lioncub.checkpoint import disk

OPERATIONS = ("make_folders", "create", "write", "sync", "sync_folder", "rename", "unlink", "remove_folder")


class Crash(BaseException):
    """The end of the process, as far as the code that is being tested can tell."""


class Disk:
    """Counts operations; at number ``fail_at`` it calls ``end`` instead. A write that fails has written half.

    It remembers what no sync has made safe yet: :meth:`cut_power` takes all of that away.
    """

    def __init__(self, fail_at: int = -1, end: Callable[[], None] | None = None) -> None:
        self.log: list[str] = []
        self._fail_at = fail_at
        self._end = end or self._crash
        self._contents: set[Path] = set()
        self._names: defaultdict[Path, set[str]] = defaultdict(set)
        self._renames: list[tuple[Path, Path]] = []

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name in OPERATIONS:
            patch.setattr(disk, name, self._counting(name, getattr(disk, name)))

    def _crash(self) -> None:
        raise Crash

    def _counting(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*args: Any) -> Any:
            if len(self.log) == self._fail_at:
                if name == "write":
                    real(args[0], args[1][: len(args[1]) // 2])
                self._end()
            self.log.append(name)
            result = real(*args)
            getattr(self, f"_after_{name}", lambda *_: None)(*args)
            return result

        return operation

    def _after_create(self, path: Path) -> None:
        self._contents.add(path)
        self._names[path.parent].add(path.name)

    def _after_sync(self, file: io.FileIO) -> None:
        self._contents.discard(Path(os.readlink(f"/proc/self/fd/{file.fileno()}")))

    def _after_sync_folder(self, path: Path) -> None:
        self._names.pop(path, None)
        self._renames = [(old, new) for old, new in self._renames if new.parent != path]

    def _after_rename(self, old: Path, new: Path) -> None:
        self._renames.append((old, new))
        if old in self._names:
            self._names[new] = self._names.pop(old)

    def cut_power(self, lost: slice = slice(None)) -> None:
        """What no sync has made safe is gone: contents, names of new files, renames.

        ``lost``: which of the renames; disks may make later ones last before earlier ones.
        """
        for path in self._contents:
            if path.exists():
                os.truncate(path, 0)
        for folder, names in self._names.items():
            for name in names:
                (folder / name).unlink(missing_ok=True)
        for old, new in reversed(self._renames[lost]):
            if new.exists() and not old.exists():
                os.rename(new, old)
