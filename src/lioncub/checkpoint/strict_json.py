"""JSON that can be trusted: no duplicate keys, no NaN, no surprises in the text."""

from __future__ import annotations

import json
from typing import Any


def dump(value: Any, *, indent: int | None = None) -> str:
    """Text that :func:`parse` reads back; raises ValueError for what JSON cannot hold."""
    try:
        text = json.dumps(value, indent=indent, allow_nan=False)
        parse(text)  # {1: …, "1": …} has two keys in Python, one in JSON
    except (TypeError, RecursionError) as problem:
        raise ValueError(str(problem)) from problem
    return text


def parse(text: str | bytes) -> Any:
    """The value; raises ValueError."""
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    except RecursionError as problem:
        raise ValueError("nested too deeply") from problem


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a key appears twice")
    return result


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
