"""Workers who decide together: what fails on one of them fails on all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from torch.optim import Optimizer

from lioncub.checkpoint import strict_json
from lioncub.errors import CheckpointError, CheckpointInUseError, ConfigError, LionCubError, PeerError, name_ranks
from lioncub.step.state import MomentumOptimizer
from lioncub.transport.comm import Comm
from lioncub.wire.handshake import gather_bytes

T = TypeVar("T")


def comm_of(optimizer: Optimizer, process_group: Any) -> Comm:
    """The workers that save or load together: by default those that train together."""
    first = next(param for group in optimizer.param_groups for param in group["params"])
    if process_group is None:
        process_group = getattr(optimizer, "process_group", None)
    return Comm.of(process_group, first.device)


def ours(optimizer: Optimizer) -> MomentumOptimizer:
    """The optimizer, if a checkpoint can hold it."""
    if not isinstance(optimizer, MomentumOptimizer):
        raise ConfigError(f"{type(optimizer).__name__}: lioncub's checkpoints hold DistributedLion, LionCub and Lion")
    return optimizer


@dataclass(frozen=True)
class Outcomes(Generic[T]):
    """What came of something that every worker tried."""

    own: T | None
    """This worker's result; None if it failed."""
    answers: list[Any]
    """What every worker tells of its result."""
    problems: list[str]
    """What went wrong, and where."""
    cause: Exception | None
    """What went wrong here."""

    @property
    def result(self) -> T:
        assert self.own is not None, "read only where nothing went wrong"
        return self.own


class Consensus:
    """All workers of a group. Every method must be called by all of them together."""

    def __init__(self, comm: Comm) -> None:
        self.worker = comm.index
        self.size = comm.size
        self._comm = comm

    def gather(self, answer: Any) -> list[Any]:
        """What every worker says, as JSON."""
        return [strict_json.parse(raw) for raw in gather_bytes(self._comm, strict_json.dump(answer).encode())]

    def attempt_all(self, attempt: Callable[[], T], tell: Callable[[T], Any]) -> Outcomes[T]:
        """Try something on every worker, and gather what came of it from all.

        Whatever goes wrong is told: a worker that raised by itself would leave the others waiting.
        """
        result, answer, problem, cause = None, None, "", None
        try:
            result = attempt()
            answer = tell(result)
            strict_json.dump(answer)
        except PeerError:
            raise
        except Exception as error:
            cause, answer = error, type(error).__name__
            problem = str(error) if isinstance(error, LionCubError) else f"{answer}: {error}"
        answers = self.gather([answer, problem])
        problems = [self._told(index, text) for index, (_, text) in enumerate(answers) if text]
        return Outcomes(result, [answer for answer, _ in answers], problems, cause)

    def require_all(self, attempt: Callable[[], T], tell: Callable[[T], Any]) -> tuple[T, list[Any]]:
        """As :meth:`attempt_all`, but what went wrong anywhere raises everywhere."""
        outcomes = self.attempt_all(attempt, tell)
        if outcomes.problems:
            kinds = [kind for kind in (ConfigError, CheckpointInUseError) if kind.__name__ in outcomes.answers]
            kind = kinds[0] if kinds else CheckpointError
            raise kind("; ".join(outcomes.problems)) from outcomes.cause
        return outcomes.result, outcomes.answers

    def ranks(self, indices: Sequence[int]) -> list[int]:
        """What errors call these workers."""
        return [self._comm.global_rank(index) for index in indices]

    def _told(self, index: int, text: str) -> str:
        return f"{name_ranks([self._comm.global_rank(index)])}: {text}" if self.size > 1 else text
