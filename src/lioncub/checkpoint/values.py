"""What users save beside tensors, as JSON and back, the same to the last type.

JSON turns tuples into lists and numbers that are keys into text, and has no infinity: a scheduler's state that came
back like that would go wrong later, without a word. Such values are written as an object with one key, :data:`KIND`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

KIND = "!"
_MAKERS: dict[str, Callable[[Any], Any]] = {
    "tuple": lambda items: tuple(map(from_json, items)),
    "dict": lambda items: {from_json(key): from_json(value) for key, value in items},
    "counter": lambda items: Counter({from_json(key): from_json(value) for key, value in items}),
    "float": float,
}


def to_json(value: Any) -> Any:
    """Lists, objects with text as keys, text, numbers, true, false, null; raises ValueError for what is none of it."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {KIND: ["float", repr(value)]}
    if type(value) is list:
        return list(map(to_json, value))
    if type(value) is tuple:
        return {KIND: ["tuple", list(map(to_json, value))]}
    if type(value) in (dict, Counter):
        plain = type(value) is dict and KIND not in value and all(type(key) is str for key in value)
        if plain:
            return {key: to_json(each) for key, each in value.items()}
        items = [[to_json(key), to_json(each)] for key, each in value.items()]
        return {KIND: ["dict" if type(value) is dict else "counter", items]}
    raise ValueError(f"{type(value).__name__} is not None, a bool, number, text, list, tuple or dict: {value!r:.80}")


def from_json(value: Any) -> Any:
    """The inverse; raises ValueError or TypeError for what :func:`to_json` never writes."""
    if type(value) is list:
        return list(map(from_json, value))
    if type(value) is not dict:
        return value
    if KIND not in value:
        return {key: from_json(each) for key, each in value.items()}
    (kind, content), *others = value.values()
    if others or kind not in _MAKERS:
        raise ValueError(f"a value of kind {kind!r} cannot be")
    return _MAKERS[kind](content)
