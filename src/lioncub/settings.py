"""Settings that cannot work, refused at construction."""

from __future__ import annotations

from typing import Any

import torch

from lioncub.codecs import Codec
from lioncub.errors import ConfigError


def check_group(group: dict[str, Any]) -> None:
    """Raise :class:`ConfigError` for settings that cannot work."""
    if not float(group["lr"]) >= 0:
        raise ConfigError(f"lr={group['lr']}: must be 0 or more")
    if len(group["betas"]) != 2 or not all(0 <= beta < 1 for beta in group["betas"]):
        raise ConfigError(f"betas={group['betas']}: two numbers, each at least 0 and below 1")
    if not group["weight_decay"] >= 0:
        raise ConfigError(f"weight_decay={group['weight_decay']}: must be 0 or more")
    if not isinstance(group["codec"], Codec):
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
