"""The events that a monitor sends to its sinks. The annotations define the format of their records as well."""

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
    """The communication of a step: means over a reading's steps unless a field says otherwise."""

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
    """None for optimizers of other packages."""

    def parts(self) -> dict[str, float]:
        """The seconds of a step by activity. "compute" is all time outside the optimizer: forward, backward, data."""
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
    """A failure signature, reported once when it begins."""

    step: Count
    signature: str
    message: str
    remedy: str
    workers: tuple[Count, ...] = ()
    """The workers concerned, where they are known."""


@dataclass(frozen=True, kw_only=True)
class End:
    """The job has left the monitor."""

    time: Time
    error: str
    """The error that ended the job; "" for none."""


Event = Start | Reading | Finding | End
