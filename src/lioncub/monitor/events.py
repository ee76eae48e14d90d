"""What a monitor tells its sinks. Annotations are also the format of the events' records, and its limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from lioncub.records import LEAST, Amount, Count

Time = Annotated[float, Meta(ge=0, lt=1e11)]
"""Seconds since 1970: durations between such times can be written as days and hours."""
Loss = Annotated[float, Meta(gt=-1e300, lt=1e300)]
Share = Annotated[float, Meta(ge=0, le=1 + LEAST)]


@dataclass(frozen=True, kw_only=True)
class Start:
    """A job begins, or begins again."""

    time: Time
    worker: Count
    optimizer: str
    """Its class, its codecs and the number of its parameters."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """What workers told one another: per step, means over a reading's steps unless it says otherwise."""

    seconds_encoding: Amount
    seconds_waited: Amount
    seconds_applying: Amount
    bytes_sent: Amount
    bytes_received: Amount
    bits_per_parameter: Amount
    agreement: Share | None
    voters: Count
    """The fewest of any step."""
    abstentions: tuple[Count, ...]
    """The workers that abstained, each as often as there were steps in which it did."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The figures of a few steps, means per step."""

    time: Time
    step: Count
    """The number of the last of these steps."""
    num_steps: Count
    seconds: Amount
    """From the end of a step to the end of the next."""
    loss: Loss | None
    exchange: Exchange | None
    """None for optimizers that are not lioncub's."""

    def parts(self) -> dict[str, float]:
        """Where a step's seconds went. "compute" is all that is not the optimizer's: forward, backward, data."""
        if self.exchange is None:
            return {}
        parts = {
            "encode": self.exchange.seconds_encoding,
            "wait": self.exchange.seconds_waited,
            "apply": self.exchange.seconds_applying,
        }
        return {"compute": max(self.seconds - sum(parts.values()), 0.0), **parts}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A failure signature that was seen, told once when it begins."""

    step: Count
    signature: str
    message: str
    remedy: str
    workers: tuple[Count, ...] = ()
    """Whom it is about, where that is known."""


@dataclass(frozen=True, kw_only=True)
class End:
    """The job has left the monitor."""

    time: Time
    error: str
    """What it ended with; "" if all went well."""


Event = Start | Reading | Finding | End
