"""The momenta in an optimizer's state: made, saved and loaded in their own precision."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lioncub.errors import ConfigError
from lioncub.kernels import warn_without_native
from lioncub.step.huge_pages import zeros_like_all
from lioncub.step.validation import check_group, checked_momentum_dtype


class PlainOptimizer(Optimizer):
    """torch's optimizer without what keeps ``torch.compile`` out of its methods.

    Those wrappers import torch._dynamo, and Triton where it is installed, at the first call: a thousand modules that no
    step here needs, and a process that is interrupted while it imports them may abort.
    """

    add_param_group = unwrap(Optimizer.add_param_group)
    load_state_dict = unwrap(Optimizer.load_state_dict)
    state_dict = unwrap(Optimizer.state_dict)
    zero_grad = unwrap(Optimizer.zero_grad)


class MomentumOptimizer(PlainOptimizer):
    """An optimizer whose state is a momentum for each parameter, made at construction."""

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any], momentum_dtype: torch.dtype) -> None:
        self._momentum_dtype = checked_momentum_dtype(momentum_dtype)
        params = [params] if isinstance(params, Tensor) else list(params)
        if not params:
            raise ConfigError(
                "the optimizer got an empty parameter list: pass model.parameters() of a model that has any"
            )
        super().__init__(params, defaults)
        if not any(group["params"] for group in self.param_groups):
            raise ConfigError("the parameter groups are empty: pass model.parameters() of a model that has any")

        if any(param.device.type == "cpu" for group in self.param_groups for param in group["params"]):
            warn_without_native()

    momentum_format = torch.contiguous_format
    """The memory order of momenta."""

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_momentum_dtype": self._momentum_dtype}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        group["step"] = group["since"] = self.param_groups[0]["step"]
        try:
            check_group(group)
        except ConfigError:
            del self.param_groups[-1]
            raise
        new = [param for param in group["params"] if "exp_avg" not in self.state[param]]
        for param, momentum in zip(new, self._momenta_for(new), strict=True):
            self.state[param]["exp_avg"] = momentum

    def _momenta_for(self, params: Sequence[Tensor]) -> list[Tensor]:
        """Zeros, each in its own precision and memory order: ``momentum_dtype``, or float64 for a float64 parameter."""
        dtypes = [torch.float64 if param.dtype == torch.float64 else self._momentum_dtype for param in params]
        return zeros_like_all(params, dtypes, self.momentum_format)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's, but momenta keep their precision: torch would cast them to the parameter's."""
        saved = momenta_of(state_dict, self.param_groups)
        settings = [{key: group[key] for key in group if key != "params"} for group in self.param_groups]
        params = [param for group in self.param_groups for param in group["params"]]
        momenta = self._momenta_for(params)  # before anything is replaced: there may be no room
        super().load_state_dict(state_dict)
        for group, mine in zip(self.param_groups, settings, strict=True):
            for key, value in mine.items():
                group.setdefault(key, value)  # what another Lion's state does not know
        for param, momentum, value in zip(params, momenta, saved, strict=True):
            self.state[param]["exp_avg"] = momentum if value is None else momentum.copy_(value)


def momenta_of(state_dict: dict[str, Any], groups: list[dict[str, Any]]) -> list[Tensor | None]:
    """The momenta in a state, parameter by parameter; raises :class:`ConfigError` for a state that is not Lion's."""
    foreign = "this is the state of another kind of optimizer: its lr and moments do not fit Lion"
    if any("betas" not in group or "eps" in group for group in state_dict["param_groups"]):
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
