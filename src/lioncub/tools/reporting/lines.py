"""Records, one JSON object a line, in files that a crash in the middle of a line does not spoil."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def append_line(path: Path, line: str) -> None:
    """Add a line, on disk when this returns; a last line that was never finished goes."""
    path.touch()
    with path.open("r+b") as file:
        there = file.read()
        end = there.rfind(b"\n") + 1
        if _is_whole(there[end:]):
            file.write(b"\n")
        else:
            file.truncate(end)
            file.seek(end)
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def finished_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number, line) of all that are not blank, without a last one that was never finished."""
    *lines, last = path.read_bytes().split(b"\n")
    for number, line in enumerate([*lines, last] if _is_whole(last) else lines, start=1):
        if line.strip():
            yield number, line.decode()


def read_lines(path: Path, parse: Callable[[str], T]) -> Iterator[T]:
    """The finished lines as records; a ValueError of ``parse`` names the file and the line."""
    for number, line in finished_lines(path):
        try:
            yield parse(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error


def _is_whole(last: bytes) -> bool:
    """Whether what follows the last line break is a record: an editor may have dropped the line break after it."""
    try:
        return isinstance(json.loads(last), dict)
    except (ValueError, RecursionError):
        return False
