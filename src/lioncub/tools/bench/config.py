"""The settings of a run of ``lioncub bench kernels``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lioncub.errors import ConfigError
from lioncub.tools.bench.docs import MARKERS
from lioncub.tools.reporting.machine import l3_bytes

MOST_VOTERS = 32
QUICK: dict[str, Any] = {"numel": 1 << 16, "repeats": 3, "rounds": 1}


@dataclass(frozen=True, kw_only=True)
class BenchConfig:
    """Sizes and repetitions. ``quick`` is for trying it out: all fits in cache, so no figure means anything."""

    numel: int = 25_600_000
    repeats: int = 5
    """Samples of a round."""
    rounds: int = 3
    """Times that everything is set up anew: which memory a tensor gets decides how fast it is."""
    threads: tuple[int, ...] = (1, 2)
    out: Path = Path("bench-out")
    docs: Path | None = None
    quick: bool = False

    @classmethod
    def of(cls, *, quick: bool, **given: Any) -> BenchConfig:
        """The settings that are given (not None), and defaults for the rest."""
        chosen = {name: value for name, value in given.items() if value is not None}
        return cls(quick=quick, **(QUICK if quick else {}) | chosen)

    def __post_init__(self) -> None:
        from lioncub.kernels.layout import BLOCK  # here: the command line starts without torch

        share = BLOCK * MOST_VOTERS
        if self.numel < share or self.numel % share:
            raise ConfigError(f"numel must be a multiple of {share}: {MOST_VOTERS} workers share it, got {self.numel}")
        if self.repeats < 3:
            raise ConfigError(f"repeats must be at least 3, for a median, got {self.repeats}")
        if self.rounds < 1:
            raise ConfigError(f"rounds must be at least 1, got {self.rounds}")
        if not self.threads or min(self.threads) < 1 or len(set(self.threads)) < len(self.threads):
            raise ConfigError(f"threads must be different numbers from 1 up, got {list(self.threads)}")
        cores = os.cpu_count() or 1
        if max(self.threads) > max(cores, 2):
            raise ConfigError(f"threads must not be more than this machine's {cores} cores, got {list(self.threads)}")
        if self.out.exists() and not self.out.is_dir():
            raise ConfigError(f"out must be a directory, but {self.out} is a file")
        if self.docs is not None:
            MARKERS.check(self.docs)

    @property
    def in_cache(self) -> bool:
        """Whether caches hold a good part of what kernels read, so that figures say little about the memory."""
        return 8 * self.numel < 4 * l3_bytes()

    @property
    def rotating_bytes(self) -> int:
        """The total size of small inputs before one is used again, so that they are read from memory."""
        return 1 << 16 if self.quick else 4 * l3_bytes()

    @property
    def shrink(self) -> int:
        """The divisor of every dimension of the models."""
        return 16 if self.quick else 1

    @property
    def tiny_tensors(self) -> int:
        return 100 if self.quick else 1_000
