"""The random states of a process as tensors: those of torch, Python and numpy, and CUDA's where there is one."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lioncub.errors import ConfigError

NAMES = {"torch", "python", "python.gauss", "numpy", "numpy.gauss", "cuda"}


def capture(device: torch.device) -> dict[str, Tensor]:
    """As they are now. ``device`` is where the model lives."""
    _, words, gauss = random.getstate()
    of_numpy: dict[str, Any] = np.random.get_state(legacy=False)
    if (kind := of_numpy["bit_generator"]) != "MT19937":
        raise ConfigError(f"numpy's global generator is a {kind}: checkpoints can only hold its default, MT19937")
    twister = of_numpy["state"]
    states = {
        "torch": torch.get_rng_state(),
        "python": torch.tensor(words),
        "python.gauss": torch.tensor([] if gauss is None else [gauss], dtype=torch.float64),
        "numpy": torch.tensor([*twister["key"].tolist(), twister["pos"], of_numpy["has_gauss"]]),
        "numpy.gauss": torch.tensor([of_numpy["gauss"]], dtype=torch.float64),
    }
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore(states: Mapping[str, Tensor], device: torch.device) -> None:
    """Go on with these numbers."""
    torch.set_rng_state(states["torch"])
    random.setstate(_python(states))
    np.random.set_state(_numpy(states))
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


def check(states: Mapping[str, Tensor]) -> None:
    """Raise ValueError for what :func:`restore` could not take."""
    if strange := set(states) - NAMES:
        raise ValueError(f"there is no generator {min(strange)}")
    try:
        torch.Generator().set_state(states["torch"])
        random.Random().setstate(_python(states))
        np.random.RandomState().set_state(_numpy(states))
    except (KeyError, TypeError, OverflowError, RuntimeError) as problem:
        raise ValueError(f"its random states cannot be used: {problem}") from problem


def digest(states: Mapping[str, Tensor]) -> str:
    """SHA-256 of all states."""
    total = hashlib.sha256()
    for name, state in sorted(states.items()):
        total.update(name.encode())
        total.update(state.contiguous().view(torch.uint8).numpy().data)
    return total.hexdigest()


def start_anew(seed: str) -> None:
    """Seed every generator from a text."""
    words = np.frombuffer(hashlib.sha256(seed.encode()).digest(), dtype="<u4")
    random.seed(seed)
    np.random.seed(words)
    torch.manual_seed(int.from_bytes(words[:2].tobytes(), "little") >> 1)  # and CUDA's, where there is one


def _python(states: Mapping[str, Tensor]) -> tuple[Any, ...]:
    gauss = states["python.gauss"].tolist()
    return 3, tuple(states["python"].tolist()), gauss[0] if gauss else None


def _numpy(states: Mapping[str, Tensor]) -> tuple[Any, ...]:
    *keys, position, has_gauss = states["numpy"].tolist()
    return "MT19937", np.array(keys, dtype=np.uint32), position, has_gauss, states["numpy.gauss"].item()
