"""Records, one JSON object a line, in files that a crash in the middle of a line does not spoil."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def append_line(path: Path, line: str) -> None:
    """Add a line, on disk when this returns; what follows the last line break was never finished and goes."""
    path.touch()
    with path.open("r+b") as file:
        file.truncate(file.read().rfind(b"\n") + 1)
        file.seek(0, os.SEEK_END)
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def finished_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number, line) of all that are not blank, without what follows the last line break."""
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n")[:-1], start=1):
        if line.strip():
            yield number, line
