"""The momenta in an optimizer's state: made, and taken from a saved state."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lioncub import rule
from lioncub.errors import ConfigError


def momentum_for(param: Tensor, value: Tensor | None = None) -> Tensor:
    """A momentum in its own precision, contiguous whatever the parameter's memory order: ``value``, or zeros."""
    momentum = torch.zeros(param.shape, dtype=rule.compute_dtype(param), device=param.device)
    return momentum if value is None else momentum.copy_(value)


def momenta_of(state_dict: dict[str, Any], groups: list[dict[str, Any]]) -> list[Tensor | None]:
    """The momenta in a state, parameter by parameter; raises :class:`ConfigError` for a state that is not Lion's."""
    foreign = "this is the state of another kind of optimizer: its lr and moments do not fit Lion"
    if any("betas" not in group for group in state_dict["param_groups"]):
        raise ConfigError(foreign)
    params = [param for group in groups for param in group["params"]]
    states = [state_dict["state"].get(number, {}) for group in state_dict["param_groups"] for number in group["params"]]
    if len(states) != len(params):
        raise ConfigError(f"the state holds {len(states)} parameters, the optimizer {len(params)}")
    for position, (param, state) in enumerate(zip(params, states, strict=True)):
        if "exp_avg_sq" in state or (state and "exp_avg" not in state):
            raise ConfigError(foreign)
        momentum = state.get("exp_avg")
        if momentum is not None and momentum.shape != param.shape:
            raise ConfigError(
                f"parameter {position} has shape {tuple(param.shape)}, its saved momentum {tuple(momentum.shape)}"
            )
    return [state.get("exp_avg") for state in states]
