"""What a step cost and how united the workers were."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stats:
    """Figures of one step, on this worker."""

    step: int
    """The step's number, the first is 0."""
    num_parameters: int
    bytes_sent: int
    """Handed to the network by this worker, headers, padding and momentum synchronisation included."""
    bytes_received: int
    num_messages: int
    seconds_waited: float
    """How long ``exchange()`` stood still until everything had come back: what overlap could not hide."""
    seconds_encoding: float
    """Spent on encoding and launching, partly inside backward. On a GPU, the host's part of it."""
    seconds_applying: float
    """Spent in ``apply()``. On a GPU, the host's part of it."""
    voters: int
    """The fewest workers with finite gradients for any bucket."""
    abstentions: tuple[int, ...]
    """The workers whose gradient was not finite somewhere, or who had no data."""
    agreement: float
    """The share of elements, of those this worker voted on, in which the outcome has the sign it voted for."""
    stopping: tuple[int, ...] = ()
    """The workers that ask all to stop after this step: the same on every worker."""
    agreements: tuple[float, ...] = ()
    """The running mean of every worker's agreement, up to the step before; the same on every worker."""
    suspects: tuple[int, ...] = ()
    """Workers that agree far less often than the others: a faulty machine, or quite other data."""
    repaired: tuple[int, ...] = ()
    """Workers whose parameters were overwritten with those of the majority before this step."""

    @classmethod
    def before_the_first_step(cls) -> Stats:
        return cls(-1, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0, (), float("nan"))

    @property
    def bits_per_parameter(self) -> float:
        """Bits sent by this worker per parameter."""
        return 8 * self.bytes_sent / max(self.num_parameters, 1)
