"""Dispatch: the body of each call, chosen by the device and the precision of its operands."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Protocol

import torch
from torch import Tensor

from lioncub.errors import ConfigError
from lioncub.kernels import native, torch_ops, triton_ops
from lioncub.kernels.layout import Ballot
from lioncub.kernels.operands import Cut, Direction, Encoded, Move, Quantiser, Stride, Tally, UpdateVector


class Body(Protocol):
    """The signatures of the kernels. :mod:`lioncub.kernels.torch_ops` specifies them."""

    def encode_signs(self, u: UpdateVector, step: int, *, abstain: bool) -> Encoded: ...
    def encode_levels(self, u: UpdateVector, step: int, quantiser: Quantiser) -> Encoded: ...
    def encode_values(self, u: UpdateVector, dtype: torch.dtype) -> Encoded: ...
    def majority(self, payloads: Tensor, ballot: Ballot, tally: Tally) -> Tensor: ...
    def count_ones(self, payloads: Tensor, ballot: Ballot) -> Tensor: ...
    def apply_(self, moves: Sequence[Move], direction: Direction) -> None: ...
    def lion_(self, strides: Sequence[Stride]) -> int: ...
    def count_matches(self, payload: Tensor, direction: Direction, cuts: Sequence[Cut], *, own_zeros: bool) -> int: ...
    def fingerprint(self, tensor: Tensor, crc: int = 0, *, first: int = 0, last: int | None = None) -> int: ...
    def checksums(self, rows: Tensor, num_bytes: int) -> list[int]: ...
    def sample(self, tensor: Tensor) -> int: ...


_BODIES: dict[str, Body] = {"native": native, "triton": triton_ops, "torch": torch_ops}
_forced: list[str] = []
_chosen: dict[tuple[str, torch.dtype, str], Body] = {}
"""By device, precision and the body that is forced."""


def bodies() -> dict[str, str]:
    """The bodies by name, each with the reason why it cannot be used here ("" where it can)."""
    return {"native": native.why_not(), "triton": triton_ops.why_not(), "torch": ""}


@contextmanager
def using(name: str) -> Iterator[None]:
    """Only this body inside the block (float64 still takes torch): for tests and benchmarks.

    In all threads, for backward and exchanges have their own; blocks may be nested.
    """
    if bodies().get(name, "there is no such body") != "":
        raise ConfigError(f"kernels {name!r} cannot be used: {bodies().get(name, 'choose native, triton or torch')}")
    _forced.append(name)
    try:
        yield
    finally:
        _forced.pop()


def body_name(device: torch.device, dtype: torch.dtype) -> str:
    """The body for tensors of this device that are computed in ``dtype``."""
    return _name(device, dtype, _forced[-1] if _forced else "")


def _name(device: torch.device, dtype: torch.dtype, forced: str) -> str:
    if forced and dtype == torch.float32:
        return forced
    if device.type == "cpu" and dtype == torch.float32 and not native.why_not():
        return "native"
    if device.type == "cuda" and dtype == torch.float32 and not triton_ops.why_not():
        return "triton"
    return "torch"


@cache
def warn_without_native() -> None:
    """Warn, once a process, that without the C++ kernels CPU tensors take ones that are several times slower."""
    if problem := native.why_not():
        message = f"lioncub computes with slower kernels: {problem}. `lioncub doctor` says what to do"
        warnings.warn(message, RuntimeWarning, stacklevel=4)


def body_for(device: torch.device, dtype: torch.dtype = torch.float32) -> Body:
    forced = _forced[-1] if _forced else ""
    body = _chosen.get((device.type, dtype, forced))
    if body is None:
        body = _chosen[device.type, dtype, forced] = _BODIES[_name(device, dtype, forced)]
    return body


def encode_signs(u: UpdateVector, step: int, *, abstain: bool) -> Encoded:
    return body_for(u.device, u.dtype).encode_signs(u, step, abstain=abstain)


def encode_levels(u: UpdateVector, step: int, quantiser: Quantiser) -> Encoded:
    return body_for(u.device, u.dtype).encode_levels(u, step, quantiser)


def encode_values(u: UpdateVector, dtype: torch.dtype) -> Encoded:
    return body_for(u.device, u.dtype).encode_values(u, dtype)


def majority(payloads: Tensor, ballot: Ballot, tally: Tally) -> Tensor:
    return body_for(payloads.device).majority(payloads, ballot, tally)


def count_ones(payloads: Tensor, ballot: Ballot) -> Tensor:
    return body_for(payloads.device).count_ones(payloads, ballot)


def apply_(moves: Sequence[Move], direction: Direction) -> None:
    """All ``x`` of one device and one precision of computation."""
    if moves:
        body_for(moves[0].x.device, computed_in(moves[0].x)).apply_(moves, direction)
        _note_writes([move.x for move in moves] + [move.m for move in moves if move.m is not None])


def lion_(strides: Sequence[Stride]) -> int:
    """All ``x`` of one device and one precision of computation."""
    if not strides:
        return 0
    skipped = body_for(strides[0].x.device, computed_in(strides[0].x)).lion_(strides)
    _note_writes([stride.x for stride in strides] + [stride.m for stride in strides])
    return skipped


def count_matches(payload: Tensor, direction: Direction, cuts: Sequence[Cut], *, own_zeros: bool) -> int:
    return body_for(payload.device).count_matches(payload, direction, cuts, own_zeros=own_zeros)


def fingerprint(tensor: Tensor, crc: int = 0, *, first: int = 0, last: int | None = None) -> int:
    return body_for(tensor.device).fingerprint(tensor, crc, first=first, last=last)


def checksums(rows: Tensor, num_bytes: int) -> list[int]:
    return body_for(rows.device).checksums(rows, num_bytes)


def sample(tensor: Tensor) -> int:
    return body_for(tensor.device).sample(tensor)


def _note_writes(tensors: Sequence[Tensor]) -> None:
    """Increment the version counters of written tensors, by which autograd finds changes of saved tensors."""
    torch.autograd.graph.increment_version(tensors)


def computed_in(x: Tensor) -> torch.dtype:
    """The precision of arithmetic, update vector and (unless told otherwise) momentum for a parameter."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32
