"""The settings of a comparison."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from lioncub.errors import ConfigError
from lioncub.tools.compare.methods import METHODS
from lioncub.tools.lab.config import MAX_HOSTS, UNSHAPED, parse_rate

JOBS = (
    *("gpt-230k", "gpt-230k-finetune", "gpt-normal-480k", "llama-400k", "vit-200k", "resnet-170k"),
    *("gpt-1m", "gpt-10m", "gpt-50m", "vit-1m", "vit-10m", "vit-19m", "resnet-1m", "resnet-10m", "resnet-11m"),
)
"""The names of :data:`lioncub.tools.jobs.catalogue.JOBS`, known without importing torch."""

MOST_EXAMPLES, MOST_SEED = 1_000_000, 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Condition:
    """All settings of a cell but its method."""

    rate: str
    hosts: int
    examples: int

    @property
    def title(self) -> str:
        return f"{self.rate}, {self.hosts} hosts, {self.examples:,} each"


@dataclass(frozen=True, kw_only=True)
class CompareConfig:
    """Methods x rates x hosts x examples on one job."""

    job: str = "gpt-10m"
    data: str = "auto"
    """The text of a GPT: "enwik8", "stdlib", or "auto", the first of the two that is here."""
    methods: tuple[str, ...] = tuple(METHODS)
    rates: tuple[str, ...] = ("100mbit", "1gbit")
    hosts: tuple[int, ...] = (4,)
    examples: tuple[int, ...] = (128,)
    """Tokens or images per host and step."""
    steps: int = 20
    """Timed, after the warm-up."""
    warmup: int = 3
    seconds: float = 60.0
    """No cell trains longer, but takes ``least_steps``."""
    least_steps: int = 5
    validations: int = 4
    """The number of validations, besides the one at the start; 0: none."""
    validation_examples: int = 8192
    lr: float | None = None
    """Lion's learning rate; the job's own by default."""
    seed: int = 0
    out: Path = Path("compare-out")

    def __post_init__(self) -> None:
        if self.job not in JOBS:
            raise ConfigError(f"there is no job {self.job!r}: choose from {', '.join(JOBS)}")
        for method in self.methods:
            if method not in METHODS:
                raise ConfigError(f"there is no method {method!r}: choose from {', '.join(METHODS)}")
        for name in ("methods", "rates", "hosts", "examples"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ConfigError(f"{name} must be one or more different values, got {list(values)}")
        if len({str(parse_rate(rate)) for rate in self.rates}) < len(self.rates):
            raise ConfigError(f"rates must be one or more different values, got {list(self.rates)}")
        for hosts in self.hosts:
            if not 2 <= hosts <= MAX_HOSTS:
                raise ConfigError(f"hosts must be 2 to {MAX_HOSTS}, got {hosts}")
        if max(self.examples) > MOST_EXAMPLES or self.seed > MOST_SEED:
            raise ConfigError(f"examples must be at most {MOST_EXAMPLES:,}, seed at most {MOST_SEED:,}")
        for name, least in (("steps", 1), ("warmup", 3), ("least_steps", 1), ("validations", 0), ("seed", 0)):
            if (value := getattr(self, name)) < least:
                raise ConfigError(f"{name} must be at least {least}, got {value}")
        if not 0 < self.seconds < math.inf:
            raise ConfigError(f"seconds must be positive and finite, got {self.seconds}")
        if self.lr is not None and not 0 < self.lr < math.inf:
            raise ConfigError(f"lr must be positive and finite, got {self.lr}")
        if self.out.exists() and not self.out.is_dir():
            raise ConfigError(f"out must be a folder, but {self.out} is a file")

    @property
    def records(self) -> Path:
        return self.out / "records.jsonl"

    def conditions(self) -> list[Condition]:
        return [
            Condition(rate=str(parse_rate(rate) or UNSHAPED), hosts=hosts, examples=examples)
            for hosts, rate, examples in product(self.hosts, self.rates, self.examples)
        ]

    def settings(self) -> dict[str, Any]:
        """The settings on which a cell's figures depend, besides its method and its condition."""
        left_out = {"methods", "rates", "hosts", "examples", "out"}
        return {name: value for name, value in asdict(self).items() if name not in left_out}


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    """The settings of one host's process: the methods that it trains one after another, under one condition."""

    settings: dict[str, Any]
    methods: tuple[str, ...]
    examples: int
    interface: str
    """The interface whose bytes are counted; empty on loopback."""
    journal: str
