"""Texts that others wrote, on their way to a terminal or a document."""

from __future__ import annotations

import unicodedata

CONTROLS = ("Cc", "Cf")
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def one_line(text: str) -> str:
    """The text with a space for every line break, and without anything that a terminal would obey."""
    return "".join(map(_shown, text))


def lines(text: str) -> str:
    """The same of each of its lines."""
    return "\n".join(map(one_line, text.split("\n")))


def _shown(character: str) -> str:
    if character.isspace():
        return " "
    return REPLACEMENT if unicodedata.category(character) in CONTROLS else character
