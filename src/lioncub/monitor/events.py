"""What a monitor tells its sinks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Start:
    """A job begins, or begins again."""

    time: float
    """Seconds since 1970."""
    worker: int
    optimizer: str
    """Its class, its codecs and the number of its parameters."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """What workers told one another: per step, means over a reading's steps unless it says otherwise."""

    seconds_encoding: float
    seconds_waited: float
    seconds_applying: float
    bytes_sent: float
    bytes_received: float
    bits_per_parameter: float
    agreement: float | None
    voters: int
    """The fewest of any step."""
    abstentions: tuple[int, ...]
    """The workers that abstained, each as often as there were steps in which it did."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The figures of a few steps, means per step."""

    time: float
    """Seconds since 1970."""
    step: int
    """The number of the last of these steps."""
    num_steps: int
    seconds: float
    """From the end of a step to the end of the next."""
    loss: float | None
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

    step: int
    signature: str
    message: str
    remedy: str
    workers: tuple[int, ...] = ()
    """Whom it is about, where that is known."""


@dataclass(frozen=True, kw_only=True)
class End:
    """The job has left the monitor."""

    time: float
    error: str
    """What it ended with; "" if all went well."""


Event = Start | Reading | Finding | End
