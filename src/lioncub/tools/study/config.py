"""What a study runs."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from lioncub.errors import ConfigError
from lioncub.tools.reporting.docs import Markers
from lioncub.tools.study.presets import PRESETS, Experiment

EFFORT = "effort"


def named_experiments() -> str:
    """For those who ask what there is."""
    return "; ".join(f"{name}: {', '.join(preset.experiments)}" for name, preset in PRESETS.items())


def check_device(name: str) -> None:
    """Refuse a device that torch cannot compute on, with torch's own reason."""
    import torch  # here: the command line starts without it

    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ConfigError(f"device={name}: cannot be computed on ({str(error).splitlines()[0]})") from error


@dataclass(frozen=True, kw_only=True)
class StudyConfig:
    """Some experiments of a preset, and where their records are."""

    preset: str = "quick"
    experiments: tuple[str, ...] = ()
    """Of the preset; none named: all of them."""
    tasks: tuple[str, ...] = ()
    """Of those experiments; none named: all of them."""
    jobs: int = os.cpu_count() or 1
    """Runs at a time, a core each."""
    out: Path = Path("study-out")
    device: str = "cpu"
    """Where gradients are computed; what workers say, and the step, are computed on the CPU."""
    records: tuple[Path, ...] = ()
    """Finished runs from elsewhere, which are not made again."""
    minutes: float | None = None
    """No run begins after so long; what is left is for the next time."""
    docs: Path | None = None
    """A document to write the tables into, each experiment's between markers of its own; pictures go beside it."""
    draw: bool = True
    """False: leave the pictures as they are."""
    run: bool = True
    """False: show what there is, and train nothing."""

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise ConfigError(f"there is no preset {self.preset!r}: choose from {', '.join(PRESETS)}")
        for name in self.experiments:
            if name not in PRESETS[self.preset].experiments:
                known = ", ".join(PRESETS[self.preset].experiments)
                raise ConfigError(f"preset {self.preset} has no experiment {name!r}: choose from {known}")
        known_tasks = dict.fromkeys(task for name in self.chosen for task in self._experiment(name).tasks)
        for task in self.tasks:
            if task not in known_tasks:
                raise ConfigError(f"no experiment here has a task {task!r}: choose from {', '.join(known_tasks)}")
        if self.jobs < 1:
            raise ConfigError(f"jobs must be at least 1, got {self.jobs}")
        if self.device != "cpu":
            check_device(self.device)
        if self.minutes is not None and not self.minutes > 0:
            raise ConfigError(f"minutes must be positive, got {self.minutes}")
        if self.out.exists() and not self.out.is_dir():
            raise ConfigError(f"out must be a folder, but {self.out} is a file")
        if self.docs is not None:
            for markers in self.markers.values():
                markers.check(self.docs)
        for path in self.records:
            if not path.is_file():
                raise ConfigError(f"records must be files that a study wrote, but there is no {path}")

    @property
    def markers(self) -> dict[str, Markers]:
        """By experiment, and those of what they all take."""
        blocks = self.chosen if self.experiments else (*self.chosen, EFFORT)
        return {name: Markers(f"study:{self.preset}:{name}") for name in blocks}

    @property
    def page_path(self) -> Path:
        return self.out / "study.html"

    @property
    def own_records(self) -> Path:
        return self.out / "records.jsonl"

    @property
    def to_train(self) -> list[Experiment]:
        """The chosen experiments, on the chosen tasks."""
        return [
            replace(experiment, tasks=tuple(task for task in experiment.tasks if task in (self.tasks or [task])))
            for experiment in map(self._experiment, self.chosen)
        ]

    def _experiment(self, name: str) -> Experiment:
        return PRESETS[self.preset].experiments[name]

    @property
    def chosen(self) -> tuple[str, ...]:
        return self.experiments or tuple(PRESETS[self.preset].experiments)
