"""Records: frozen dataclasses as JSON objects, one a line.

A class's annotations are the format. msgspec refuses what does not fit them: missing fields, values of other types or
beyond a limit, NaN, infinities, half of a surrogate pair; it names the place. Fields that a class does not have are
passed over, so that a later version may add some.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

T = TypeVar("T")

LEAST, LIMIT = 1e-15, 1e15
"""Bounds of what is measured or counted, zero aside: ratios and products of such numbers stay finite."""

Count = Annotated[int, Meta(ge=0, lt=int(LIMIT))]
Plain: TypeAlias = str | int | float | bool | None
"""A value without parts."""

if TYPE_CHECKING:
    Amount: TypeAlias = float
else:

    class Amount(float):
        """Seconds or bytes: zero, or a number from :data:`LEAST` to :data:`LIMIT`."""


def to_json(record: Any, **more: Any) -> str:
    """The record on one line, with ``more`` after its own fields; ValueError where a number is not finite."""
    return json.dumps(asdict(record) | more, allow_nan=False)


def to_line(kind: str, record: Any, **more: Any) -> str:
    """The same behind the name of its kind."""
    return json.dumps({"kind": kind} | asdict(record) | more, allow_nan=False)


def from_json(text: str | bytes, cls: type[T]) -> T:
    """The inverse of :func:`to_json`; ValueError, with what is wrong and where, for anything else."""
    try:
        return msgspec.json.decode(text, type=cls, dec_hook=_convert)
    except RecursionError as problem:
        raise ValueError("nested too deeply") from problem


def from_line(line: str | bytes, kinds: Mapping[str, type[T]], what: str) -> T:
    """The inverse of :func:`to_line`; the ValueError says that the line is not ``what``, why, and how it begins."""
    try:
        kind = from_json(line, _Kind).kind
        if kind not in kinds:
            raise ValueError(f"kind {kind[:20]!r}")
        return from_json(line, kinds[kind])
    except ValueError as problem:
        raise ValueError(f"not {what}: {problem}: {line.strip()[:80]!r}") from problem


class _Kind(msgspec.Struct):
    kind: str


def _convert(cls: type, value: Any) -> Any:
    """Called by msgspec for the types that it does not know: amounts."""
    assert cls is Amount
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"Expected a number, got {type(value).__name__}")
    if value and not LEAST <= value < LIMIT:
        raise ValueError(f"Expected 0 or a number from {LEAST:g} to {LIMIT:g}")
    return Amount(value)
