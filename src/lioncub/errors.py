"""Every error lioncub raises: what happened, on which worker, what to do."""

from __future__ import annotations

import time
from collections.abc import Sequence


class LionCubError(RuntimeError):
    """The base of all of lioncub's errors."""


class ConfigError(LionCubError, ValueError):
    """A setting that cannot work; raised at construction, before anything is sent."""


class AgreementError(LionCubError):
    """Workers run with different parameters, settings or library versions."""


class ReplicasDifferError(LionCubError):
    """The parameters of some worker are not bit-identical to the others'."""

    def __init__(self, message: str, ranks: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.ranks = tuple(ranks)


class QuorumError(LionCubError):
    """Too few workers had a finite gradient; parameters and momenta are as they were."""


class GradientError(LionCubError):
    """A gradient that cannot be sent."""


class SparseGradientError(GradientError):
    """A gradient has a sparse layout."""


class GradientChangedError(GradientError):
    """A gradient changed after it had been sent during backward."""


class WireError(LionCubError):
    """A message that is damaged or belongs to another step or bucket."""


class CheckpointError(LionCubError):
    """A checkpoint that cannot be written, or is damaged, incomplete or of another model. Nothing was changed."""


class NoCheckpointError(CheckpointError):
    """A folder without any checkpoint."""


class CheckpointTimeoutError(CheckpointError, TimeoutError):
    """A checkpoint is still being written."""


class CheckpointInUseError(CheckpointError):
    """A folder of checkpoints that belongs to another job."""


class CheckpointWarning(UserWarning):
    """A checkpoint was passed over, or not taken as it is."""


class PeerError(LionCubError):
    """A worker did not take part in an exchange. The process group is unusable from here on."""

    happened = "{who} did not take part in an exchange"

    def __init__(self, ranks: Sequence[int], detail: str = "") -> None:
        self.ranks = tuple(ranks)
        self.detail = detail
        self.noticed = time.monotonic()
        super().__init__(
            f"{self.happened.format(who=name_ranks(ranks))}. The process group is unusable now: end this process and "
            f"restart the job from its last checkpoint. ({detail})"
        )


class PeerLostError(PeerError):
    """The connection to a worker closed: it crashed, was killed, or gave up."""

    happened = "lost the connection to {who}: it crashed or was stopped"


class PeerTimeoutError(PeerError):
    """A worker did not answer within the process group's time-out."""

    happened = "{who} did not answer within the time-out"


def name_ranks(ranks: Sequence[int]) -> str:
    return ("worker " if len(ranks) == 1 else "workers ") + ", ".join(map(str, ranks))
