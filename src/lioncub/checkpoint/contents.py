"""What a checkpoint is about: a model and its optimizer, every tensor by its name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lioncub.checkpoint import strict_json
from lioncub.checkpoint.manifest import Group
from lioncub.errors import CheckpointError, ConfigError
from lioncub.step.state import MomentumOptimizer
from lioncub.step.validation import check_group
from lioncub.wire.headers import WIRE_VERSION

MOMENTUM, BUFFER, RANDOM = "momentum/", "buffer/", "random/"
"""How names of tensors in a worker's file begin."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A model and its optimizer on one worker."""

    optimizer: MomentumOptimizer
    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor]
    trained: list[list[str]]
    """The names of the optimizer's parameters, group by group."""

    @classmethod
    def of(cls, model: nn.Module, optimizer: MomentumOptimizer) -> Subject:
        parameters: dict[str, Tensor] = dict(model.named_parameters())
        names = {param: name for name, param in parameters.items()}
        trained = [[names.get(param, "") for param in group["params"]] for group in optimizer.param_groups]
        if not all(name for group in trained for name in group):
            raise ConfigError(
                "the optimizer trains parameters that are not in the model: pass the model it was made for"
            )
        return cls(optimizer, parameters, _buffers(model), trained)

    @property
    def device(self) -> torch.device:
        return next(iter(self.parameters.values())).device

    def states(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The optimizer's state of every parameter."""
        for group, names in zip(self.optimizer.param_groups, self.trained, strict=True):
            for param, name in zip(group["params"], names, strict=True):
                yield name, self.optimizer.state[param]

    def momenta(self) -> dict[str, Tensor]:
        return {name: state["exp_avg"] for name, state in self.states()}

    def notes(self) -> dict[str, dict[str, Any]]:
        """What states hold besides momenta: which tensors momentum synchronisation has chosen."""
        scalars = {name: {k: v for k, v in s.items() if isinstance(v, bool | int | float)} for name, s in self.states()}
        return {name: rest for name, rest in scalars.items() if rest}

    def groups(self) -> tuple[Group, ...]:
        return tuple(
            Group(settings=_settings(group), parameters=names)
            for group, names in zip(self.optimizer.param_groups, self.trained, strict=True)
        )

    def codecs(self) -> list[str | None]:
        """What each group's codec is called; None where it has none."""
        return [group.settings.get("codec") for group in self.groups()]

    def plan(self) -> str:
        """SHA-256 of all that must be the same on every worker."""
        lines = [f"wire version {WIRE_VERSION}"]
        for kind, tensors in (("parameter", self.parameters), ("buffer", self.buffers)):
            lines += [f"{kind} {name}: {tuple(t.shape)}, {t.dtype}" for name, t in tensors.items()]
        lines += [f"momentum {name}: {momentum.dtype}" for name, momentum in self.momenta().items()]
        lines += [f"{group.settings}: {group.parameters}" for group in self.groups()]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def new_groups(self, groups: tuple[Group, ...], file: object) -> list[dict[str, Any]]:
        """The optimizer's groups with the saved hyperparameters; codecs are configuration and stay."""
        if [group.parameters for group in groups] != self.trained:
            raise CheckpointError(f"{file} has other parameter groups than this optimizer: make it as in the saved run")
        try:
            return [
                _merged(saved.settings, current)
                for saved, current in zip(groups, self.optimizer.param_groups, strict=True)
            ]
        except (ConfigError, TypeError, ValueError, KeyError) as problem:
            raise CheckpointError(f"{file} has a setting that cannot be: {problem}") from problem


def _merged(saved: Mapping[str, Any], current: dict[str, Any]) -> dict[str, Any]:
    """A group with saved hyperparameters."""
    merged = {**current, **saved, "betas": tuple(saved["betas"])}
    if "codec" in merged:
        merged["codec"] = current.get("codec")
    check_group(merged)
    if type(merged["step"]) is not int or not 0 <= merged["step"] < 1 << 62:
        raise ConfigError(f"step={merged['step']!r}")
    if isinstance(current["lr"], Tensor):
        merged["lr"] = torch.full_like(current["lr"], merged["lr"])
    return merged


def check_alike(
    found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], file: object, *, dtypes: bool = True
) -> None:
    """Raise :class:`CheckpointError` unless the tensors have the same names, shapes and types."""
    for name in [*wanted, *found]:
        if name not in found or name not in wanted:
            whose = "the model has" if name in wanted else f"{file} has"
            raise CheckpointError(f"{file} is of another model: only {whose} {name}")
        mine, theirs = wanted[name], found[name]
        if mine.shape != theirs.shape or (dtypes and mine.dtype != theirs.dtype):
            raise CheckpointError(
                f"{file} is of another model: {name} has shape {tuple(theirs.shape)}, {theirs.dtype} there and "
                f"{tuple(mine.shape)}, {mine.dtype} in this one"
            )


def _buffers(model: nn.Module) -> dict[str, Tensor]:
    """The buffers that torch would save. State that is no tensor would be lost, and is refused."""
    named = dict(model.named_buffers(remove_duplicate=False))
    saved = model.state_dict(keep_vars=True)
    if strange := set(saved) - set(named) - set(dict(model.named_parameters(remove_duplicate=False))):
        raise ConfigError(f"the model's state {min(strange)!r} is not a tensor: save it as part of extra")
    return {name: buffer for name, buffer in named.items() if name in saved}


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    """A group's hyperparameters as JSON."""
    settings = {key: value for key, value in group.items() if key not in ("params", "param_names")}
    settings["lr"] = float(settings["lr"])
    if "codec" in settings:
        settings["codec"] = repr(settings["codec"])
    try:
        result: dict[str, Any] = strict_json.parse(strict_json.dump(settings))
    except ValueError as problem:
        raise ConfigError(f"a parameter group holds what JSON cannot: {problem}") from problem
    return result
