"""The decay rate of momenta, and the policy by which momenta of different workers are averaged."""

from lioncub.momentum.policy import MomentumSync

__all__ = ["MomentumSync"]
