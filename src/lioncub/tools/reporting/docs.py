"""The part of a document that a command writes: what is between two lines of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lioncub.errors import ConfigError
from lioncub.tools.reporting.texts import one_line


@dataclass(frozen=True)
class Markers:
    """The two lines, named after the command."""

    name: str

    @property
    def begin(self) -> str:
        return f"<!-- {self.name}:begin -->"

    @property
    def end(self) -> str:
        return f"<!-- {self.name}:end -->"

    def check(self, path: Path) -> str:
        """The document's text; raise where results could not be written, before any are made."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"docs must be a document with the lines {self.begin} and {self.end}: {error}") from error
        if text.count(self.begin) != 1 or text.count(self.end) != 1 or text.index(self.begin) > text.index(self.end):
            raise ConfigError(
                f"docs must have one line {self.begin} and after it one line {self.end}, but {path} has not"
            )
        return text

    def write(self, path: Path, results: str) -> None:
        """Replace what is between the markers."""
        text = self.check(path)
        before, after = text[: text.index(self.begin)], text[text.index(self.end) :]
        path.write_text(f"{before}{self.begin}\n{results}\n{after}", encoding="utf-8")


def fenced(commands: Iterable[str]) -> str:
    """Commands as a block of code, one a line: none can end the block, nor be taken for a marker."""
    text = "\n".join(one_line(command).replace("<!--", "<! --") for command in commands)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}sh\n{text}\n{fence}"
