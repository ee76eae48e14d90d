"""Train neural networks over slow networks: one bit per parameter instead of 32."""

from lioncub import live
from lioncub._version import __version__
from lioncub.agreement import broadcast_parameters
from lioncub.codecs import Codec, Dense, Levels, Mean, Vote
from lioncub.collectives import Hierarchical, TwoPhase
from lioncub.lion import Lion
from lioncub.momentum import MomentumSync
from lioncub.optimizer import DistributedLion
from lioncub.recipes import LionCub
from lioncub.stats import Stats

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
    "live",
]
