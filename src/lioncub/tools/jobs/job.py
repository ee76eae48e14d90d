"""The interface of training jobs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from lioncub.errors import ConfigError


@dataclass(frozen=True, kw_only=True, eq=False)
class Job(ABC):
    """A model and what it learns. Batches follow from a generator, weights from a seed, and nothing else."""

    unit: ClassVar[str]  # of the loss
    examples_unit: ClassVar[str]

    name: str
    data: str  # the data set's name
    data_version: str = ""  # where the data set is not the same everywhere
    build: Callable[[], nn.Module]
    lr: float  # for Lion
    adamw_lr: float
    weight_decay: float  # for Lion
    weights: Mapping[str, Tensor] | None = None
    """The first weights for every seed; None: they follow from the seed."""

    def __post_init__(self) -> None:
        for name in ("lr", "adamw_lr"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be positive, got {getattr(self, name)}")
        if not self.weight_decay >= 0:
            raise ConfigError(f"weight_decay must be at least 0, got {self.weight_decay}")

    @property
    def learned_from(self) -> str:
        """The data, with their version: what two runs have to share to be compared."""
        return f"{self.data} ({self.data_version})" if self.data_version else self.data

    def model(self, seed: int) -> nn.Module:
        """The model at the start, the same for the same seed. torch's own random numbers are left as they are."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            model = self.build()
        if self.weights is not None:
            model.load_state_dict(self.weights)
        return model

    def check(self, examples: int) -> None:
        """Raise ConfigError if there is no batch of ``examples``."""
        if examples < 1:
            raise ConfigError(f"{self.name} needs at least 1 of {self.examples_unit} per step, got {examples}")

    @abstractmethod
    def batch(self, generator: torch.Generator, examples: int) -> tuple[Tensor, Tensor]:
        """Random training inputs and targets."""

    @abstractmethod
    def validation(self, examples: int, *, batch: int | None = None, final: bool = False) -> tuple[Tensor, Tensor]:
        """Evenly spaced held-out inputs and targets along dimension 0, the same for every run.

        ``batch`` is the number of examples in a training batch, where that decides the shape of an input. ``final``:
        from the test set, where that is another one.
        """

    @abstractmethod
    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """The mean loss."""


def evenly_spaced(start: int, last: int, count: int) -> Tensor:
    """``count`` integers from ``start`` to ``last``."""
    return torch.linspace(start, last, count, dtype=torch.float64).long()
