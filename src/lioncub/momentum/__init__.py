"""What momenta remember, and when those of different workers are averaged."""

from lioncub.momentum.policy import MomentumSync

__all__ = ["MomentumSync"]
