"""What the fields of a record may hold, so that whatever is made from one can be computed, printed and written."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

LEAST, LIMIT = 1e-15, 1e15
"""Of all that is measured or counted, zero aside: ratios and products of such numbers stay finite."""
REAL_LIMIT = 1e39
"""No float32 is as large: losses of a training that diverges are still numbers."""
SEED_LIMIT = 1 << 64

Rule = Callable[[object], bool]


def is_text(value: object) -> bool:
    """Whole characters only: half of one cannot be written."""
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)


def is_count(value: object) -> bool:
    return _is_whole(value, LIMIT)


def is_seed(value: object) -> bool:
    return _is_whole(value, SEED_LIMIT)


def is_hosts(value: object) -> bool:
    return is_count(value) and value != 0


def is_amount(value: object) -> bool:
    """Seconds or bytes."""
    return _is_real(value, LIMIT) and (value == 0 or not _is_real(value, LEAST))


def is_real(value: object) -> bool:
    """A loss, or what a training was given."""
    return _is_real(value, REAL_LIMIT)


def is_plain(value: object) -> bool:
    """One thing of any kind, but nothing with parts."""
    return value is None or is_text(value) or (isinstance(value, int | float) and abs(value) < math.inf)


def is_table(value: object) -> bool:
    return isinstance(value, dict) and all(is_text(name) and is_plain(each) for name, each in value.items())


def optional(rule: Rule) -> Rule:
    return lambda value: value is None or rule(value)


def listed(rule: Rule, length: int | None = None) -> Rule:
    return lambda value: isinstance(value, list) and length in (None, len(value)) and all(map(rule, value))


def table_of(rules: Mapping[str, Rule]) -> Rule:
    return lambda value: isinstance(value, dict) and all(name in rules and rules[name](value[name]) for name in value)


POINT: dict[str, Rule] = {
    "step": is_count,
    "seconds": is_amount,
    "bytes_sent": is_amount,
    "train_loss": optional(is_real),
    "validation_loss": optional(is_real),
}
CELL: dict[str, Rule] = {
    **dict.fromkeys(("method", "label", "job", "unit", "examples_unit", "data", "error", "command", "run"), is_text),
    **dict.fromkeys(("examples", "parameters", "steps"), is_count),
    **dict.fromkeys(("step_seconds", "bytes_sent", "bytes_received", "bytes_planned"), is_amount),
    **dict.fromkeys(("lr", "weight_decay"), is_real),
    **dict.fromkeys(("settings", "machine"), is_table),
    "hosts": is_hosts,
    "seed": is_seed,
    "rates": listed(is_text),
    "step_seconds_quartiles": listed(is_amount, 2),
    "update_seconds": optional(is_amount),
    "points": listed(table_of(POINT)),
}


def check(values: Mapping[str, object]) -> None:
    """ValueError, which names the field, where a cell's value is none that the field may hold."""
    for name, value in values.items():
        if not CELL[name](value):
            raise ValueError(f"no value of {name}")
    if not values.get("error") and not values.get("parameters"):
        raise ValueError("a model without parameters")


def _is_whole(value: object, limit: float) -> bool:
    return isinstance(value, int) and _is_real(value, limit)


def _is_real(value: object, limit: float) -> bool:
    """Neither negative nor as large as ``limit``; True and False are no numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < limit
