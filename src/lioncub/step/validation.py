"""Settings that cannot work, refused at construction."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, get_args

import torch
from torch import Tensor

from lioncub.codecs import Codec
from lioncub.errors import ConfigError
from lioncub.kernels import Noise, noise_key
from lioncub.momentum import memory
from lioncub.transport.comm import Carrier

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
"""Of parameters."""


@dataclass(frozen=True)
class Rounding:
    """How parameters are rounded to bfloat16: stochastically with ``seed``, or to nearest."""

    stochastic: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.stochastic, bool):
            raise ConfigError(f"stochastic_rounding={self.stochastic!r}: True or False")
        if not isinstance(self.seed, int) or isinstance(self.seed, bool):
            raise ConfigError(f"rounding_seed={self.seed!r}: a whole number, the same on every worker")

    def noise(self, param: Tensor, number: int, step: int) -> Noise | None:
        """The key for parameter ``number`` at ``step``, where it is rounded stochastically."""
        return noise_key(self.seed, number, step) if self.stochastic and param.dtype == torch.bfloat16 else None


def check_group(group: dict[str, Any]) -> None:
    """Raise :class:`ConfigError` for settings that cannot work."""
    if not _is_between(group["lr"], 0, math.inf):
        raise ConfigError(f"lr={group['lr']!r}: a number, 0 or more, and finite")
    betas = group["betas"]
    if not isinstance(betas, tuple | list) or len(betas) != 2 or not all(_is_between(b, 0, 1) for b in betas):
        raise ConfigError(f"betas={betas!r}: two numbers, each at least 0 and below 1")
    memory.check(group)
    if not _is_between(group["weight_decay"], 0, math.inf):
        raise ConfigError(f"weight_decay={group['weight_decay']!r}: a number, 0 or more, and finite")
    if not isinstance(group["maximize"], bool):
        raise ConfigError(f"maximize={group['maximize']!r}: True or False")
    if not isinstance(group.get("codec"), Codec | None):
        raise ConfigError(f"codec={group['codec']!r}: pass a codec object such as Vote() or Levels(4)")
    for param in group["params"]:
        if param.dtype not in DTYPES or param.layout != torch.strided:
            raise ConfigError(
                f"a parameter of {param.dtype}, {param.layout}: only dense float32, bfloat16, float16 and float64 can "
                "be trained"
            )
        if type(param).__name__ == "DTensor":
            raise ConfigError("a parameter is a DTensor (FSDP2, tensor parallelism): only whole tensors can be trained")


def _is_between(value: Any, least: float, below: float) -> bool:
    """Numbers only, also in a tensor of one element: text would compare with an error that names no setting."""
    number = isinstance(value, Real) or (isinstance(value, Tensor) and value.numel() == 1)
    return number and least <= float(value) < below


def checked_quorum(quorum: int | None, num_workers: int) -> int:
    if quorum is None:
        return 1
    if not isinstance(quorum, int) or not 1 <= quorum <= num_workers:
        raise ConfigError(f"quorum={quorum!r}: between 1 and the number of workers, {num_workers}")
    return quorum


def checked_carrier(carrier: Carrier) -> Carrier:
    if carrier not in get_args(Carrier):
        raise ConfigError(f'carrier={carrier!r}: choose "auto", "sockets" or "backend"')
    return carrier


def checked_momentum_dtype(dtype: torch.dtype) -> torch.dtype:
    if dtype not in (torch.float32, torch.bfloat16):
        raise ConfigError(f"momentum_dtype={dtype}: choose torch.float32 or torch.bfloat16")
    return dtype


def warn_of_ddp(names: Sequence[str], num_workers: int) -> None:
    """Warn where the parameters' names are those that a wrapper gives them: it averages gradients a second time."""
    if num_workers > 1 and names and all(name.startswith("module.") for name in names):
        warnings.warn(
            "all parameters are named module.…, as inside DistributedDataParallel: it averages the gradients of all "
            "workers, at full size, before lioncub exchanges them again. Give lioncub the model without the wrapper",
            stacklevel=3,
        )
