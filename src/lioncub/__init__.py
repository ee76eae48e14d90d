"""Train neural networks over slow networks: one bit per parameter instead of 32.

The names below are imported when they are first used, so that commands which need no torch start at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lioncub._version import __version__

if TYPE_CHECKING:
    from lioncub import checkpoint, distributed, errors, kernels, live
    from lioncub.checkpoint.resume import resume
    from lioncub.codecs import Codec, Dense, Levels, Mean, Vote
    from lioncub.collectives import Hierarchical, TwoPhase
    from lioncub.lion import Lion
    from lioncub.momentum.policy import MomentumSync
    from lioncub.optimizer import DistributedLion, LionCub
    from lioncub.stats import Stats
    from lioncub.wire.replicas import broadcast_parameters

__all__ = [
    "Codec",
    "Dense",
    "DistributedLion",
    "Hierarchical",
    "Levels",
    "Lion",
    "LionCub",
    "Mean",
    "MomentumSync",
    "Stats",
    "TwoPhase",
    "Vote",
    "__version__",
    "broadcast_parameters",
    "checkpoint",
    "distributed",
    "errors",
    "kernels",
    "live",
    "resume",
]

_HOMES = {
    "broadcast_parameters": "wire.replicas",
    **dict.fromkeys(("Codec", "Dense", "Levels", "Mean", "Vote"), "codecs"),
    **dict.fromkeys(("Hierarchical", "TwoPhase"), "collectives"),
    "Lion": "lion",
    "MomentumSync": "momentum",
    **dict.fromkeys(("DistributedLion", "LionCub"), "optimizer"),
    "resume": "checkpoint.resume",
    "Stats": "stats",
}


def __getattr__(name: str) -> Any:
    if name in ("checkpoint", "distributed", "errors", "kernels", "live"):
        return import_module(f"lioncub.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'lioncub' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"lioncub.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
