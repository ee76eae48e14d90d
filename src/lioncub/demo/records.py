"""What a training run writes down, one JSON object a line, and what is read from it."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from lioncub.demo.config import METHODS


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step as worker 0 saw it. Step 0 is the untrained model. The clock stands still in validation."""

    method: str
    step: int
    seconds: float  # of training since the start
    step_seconds: float
    bytes_sent: int  # by this worker since the start
    train_loss: float | None  # nats per byte, this worker's batch
    validation_loss: float | None = None  # nats per byte, all workers' share of the same windows

    def to_json(self) -> str:
        return json.dumps({"kind": "step"} | asdict(self), allow_nan=False)


def parse_step(line: str) -> Step:
    """A step from its line; ValueError if the line is something else."""
    try:
        values = json.loads(line)
        if values.pop("kind") != "step":
            raise ValueError("not a step")
        return Step(**values)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a step record: {line.strip()[:80]!r}") from error


def parse_steps(text: str) -> list[Step]:
    """The steps among the lines of a `records.jsonl`, whose first line describes the run."""
    return [parse_step(line) for line in text.splitlines() if json.loads(line).get("kind") == "step"]


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One method's figures."""

    method: str
    validation_loss: float
    step_seconds: float  # median
    bytes_per_step: float
    fewer_bytes: float  # than the first method, as a factor

    @property
    def label(self) -> str:
        return METHODS.get(self.method, self.method)

    @property
    def bits_per_byte(self) -> float:
        return self.validation_loss / math.log(2)


def summarise(runs: Iterable[Sequence[Step]]) -> list[Summary]:
    """Figures of each method's steps; byte ratios are taken against the first."""
    summaries: list[Summary] = []
    for steps in runs:
        last = steps[-1]
        if last.step == 0 or last.validation_loss is None:
            raise ValueError(f"the records of {last.method} stop at step {last.step}, before the end of training")
        bytes_per_step = last.bytes_sent / last.step
        baseline = summaries[0].bytes_per_step if summaries else bytes_per_step
        summaries.append(
            Summary(
                method=last.method,
                validation_loss=last.validation_loss,
                step_seconds=median(step.step_seconds for step in steps if step.step),
                bytes_per_step=bytes_per_step,
                fewer_bytes=baseline / bytes_per_step if bytes_per_step else 1.0,
            )
        )
    return summaries
