"""Settings that cannot work, refused at construction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lioncub.codecs import Codec
from lioncub.errors import ConfigError
from lioncub.kernels import Noise, noise_key


@dataclass(frozen=True)
class Rounding:
    """How parameters are rounded to bfloat16: stochastically with ``seed``, or to nearest."""

    stochastic: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.seed, int) or isinstance(self.seed, bool):
            raise ConfigError(f"rounding_seed={self.seed!r}: a whole number, the same on every worker")

    def noise(self, param: Tensor, number: int, step: int) -> Noise | None:
        """The key for parameter ``number`` at ``step``, where it is rounded stochastically."""
        return noise_key(self.seed, number, step) if self.stochastic and param.dtype == torch.bfloat16 else None


def check_group(group: dict[str, Any]) -> None:
    """Raise :class:`ConfigError` for settings that cannot work."""
    if not float(group["lr"]) >= 0:
        raise ConfigError(f"lr={group['lr']}: must be 0 or more")
    if len(group["betas"]) != 2 or not all(0 <= beta < 1 for beta in group["betas"]):
        raise ConfigError(f"betas={group['betas']}: two numbers, each at least 0 and below 1")
    if not group["weight_decay"] >= 0:
        raise ConfigError(f"weight_decay={group['weight_decay']}: must be 0 or more")
    if not isinstance(group.get("codec"), Codec | None):
        raise ConfigError(f"codec={group['codec']!r}: pass a codec object such as Vote() or Levels(4)")
    for param in group["params"]:
        if not param.is_floating_point() or param.layout != torch.strided:
            raise ConfigError(
                f"a parameter of {param.dtype}, {param.layout}: only dense, real floating point can be sent"
            )


def checked_quorum(quorum: int | None, num_workers: int) -> int:
    if quorum is None:
        return 1
    if not isinstance(quorum, int) or not 1 <= quorum <= num_workers:
        raise ConfigError(f"quorum={quorum!r}: between 1 and the number of workers, {num_workers}")
    return quorum


def checked_momentum_dtype(dtype: torch.dtype) -> torch.dtype:
    if dtype not in (torch.float32, torch.bfloat16):
        raise ConfigError(f"momentum_dtype={dtype}: choose torch.float32 or torch.bfloat16")
    return dtype
