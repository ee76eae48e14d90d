"""What the fields of an event may hold, so that whatever is shown of one can be computed and printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lioncub.monitor.events import End, Event, Finding, Reading, Start

LEAST, LIMIT = 1e-15, 1e15
"""Of all that is measured or counted, zero aside: ratios and products of such numbers stay finite."""
TIME_LIMIT = 1e11
"""Seconds since 1970: durations between such times can be written as days and hours."""
LOSS_LIMIT = 1e300

Rule = Callable[[object], bool]


def is_text(value: object) -> bool:
    """Whole characters only: half of one cannot be printed."""
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)


def is_amount(value: object) -> bool:
    return _is_number(value, 0, LIMIT) and (value == 0 or _is_number(value, LEAST, LIMIT))


def is_share(value: object) -> bool:
    return _is_number(value, 0, 1 + LEAST)


def is_count(value: object) -> bool:
    return isinstance(value, int) and _is_number(value, 0, LIMIT)


def is_time(value: object) -> bool:
    return _is_number(value, 0, TIME_LIMIT)


def is_loss(value: object) -> bool:
    return _is_number(value, -LOSS_LIMIT, LOSS_LIMIT)


def are_workers(value: object) -> bool:
    return isinstance(value, list) and all(map(is_count, value))


def optional(rule: Rule) -> Rule:
    return lambda value: value is None or rule(value)


RULES: dict[type[Event], dict[str, Rule]] = {
    Start: {"time": is_time, "worker": is_count, "optimizer": is_text},
    Reading: {
        "time": is_time,
        "step": is_count,
        "num_steps": is_count,
        "seconds": is_amount,
        "loss": optional(is_loss),
        "exchange": optional(lambda value: isinstance(value, dict)),
    },
    Finding: {
        "step": is_count,
        **dict.fromkeys(("signature", "message", "remedy"), is_text),
        "workers": are_workers,
    },
    End: {"time": is_time, "error": is_text},
}
EXCHANGE: dict[str, Rule] = {
    **dict.fromkeys(("seconds_encoding", "seconds_waited", "seconds_applying"), is_amount),
    **dict.fromkeys(("bytes_sent", "bytes_received", "bits_per_parameter"), is_amount),
    "agreement": optional(is_share),
    "voters": is_count,
    "abstentions": are_workers,
}


def check(values: Mapping[str, object], rules: Mapping[str, Rule]) -> None:
    """ValueError or KeyError unless every field is there and holds what it may."""
    for name, rule in rules.items():
        if not rule(values[name]):
            raise ValueError(f"no value of {name}")


def _is_number(value: object, least: float, limit: float) -> bool:
    """True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value < limit
