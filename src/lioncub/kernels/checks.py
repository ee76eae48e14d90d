"""Checks of operands, made by every body before it reads anything.

Bodies read and write raw memory: a direction that is too short, or a payload of another type, would end in a crash or
in wrong numbers. For plain tensors the native body leaves the same checks to C++. ``device``: the device of all
operands; None: the first operand's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache

import torch
from torch import Tensor

from lioncub.errors import ConfigError
from lioncub.kernels.layout import BLOCK, Ballot
from lioncub.kernels.operands import Cut, Direction, Move, Quantiser, Stride, Tally, UpdateVector

PLANE_BYTES = BLOCK // 8
MAX_SUM_BITS = 40
MAX_COUNT_PLANES = 24
"""The limit of a count, which is computed with in float32."""
NUMBERS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def check_update(u: UpdateVector, device: torch.device | None = None) -> None:
    if len(u.parts) != len(u.layout.lengths):
        raise ValueError(f"{len(u.parts)} parts do not fit a layout of {len(u.layout.lengths)} tensors")
    device = device or u.device
    for (m, g, _, _, next_m, _, _), length in zip(u.parts, u.layout.lengths, strict=True):
        _check_tensors((m, g, next_m), length, device)
        if next_m is not None and m is not None and not (next_m.dtype == m.dtype and next_m.is_contiguous()):
            raise ValueError("the next momentum must be contiguous and as precise as the momentum")


def check_quantiser(quantiser: Quantiser) -> None:
    grid, bits, scale, log2_base, below = quantiser
    if grid not in ("midrise", "log", "midtread") or scale not in ("l1", "linf"):
        raise ConfigError(f"grid={grid!r}, scale={scale!r}: choose midrise, log or midtread, and l1 or linf")
    if not 2 <= bits <= 8 or not 1 <= log2_base <= 3:
        raise ConfigError(f"{bits} bits, a base of 2^{log2_base}: choose 2 to 8 bits, and a base of 2, 4 or 8")
    most = (1 << (bits - 1)) - 1 if grid == "log" and scale == "l1" else 0
    if not 0 <= below <= most:
        raise ConfigError(f"{below} levels below the mean: choose 0 to {most} with {bits} bits, {grid}, {scale}")


def check_ballot(payloads: Tensor, ballot: Ballot, planes: int, device: torch.device | None = None) -> None:
    """``[workers, blocks, bytes]`` of so many planes, and who votes on which elements of them."""
    width = planes * PLANE_BYTES
    _check_bytes(payloads, 3, device or payloads.device)
    if payloads.shape[2] != width:
        raise ValueError(f"payloads of {width} bytes a block are needed, not {tuple(payloads.shape)}")
    workers, blocks, _ = payloads.shape
    if not workers:
        raise ValueError("payloads of at least one worker are needed")
    for span in ballot.spans:
        known = not span.voters or (min(span.voters) >= 0 and max(span.voters) < workers >= len(span.voters))
        if not known or not 0 <= span.start <= span.stop <= blocks * BLOCK:
            raise ValueError(
                f"elements {span.start} to {span.stop} of voters {span.voters} are not in payloads "
                f"{tuple(payloads.shape)}"
            )


def check_tally(tally: Tally, ballot: Ballot) -> None:
    _check_magnitudes(tally.magnitudes)
    bits = tally.sum_bits(max((len(span.voters) for span in ballot.spans), default=0))
    if bits > MAX_SUM_BITS:
        raise ValueError(f"sums of {bits} bits are not possible: {MAX_SUM_BITS} at most")


@cache
def _check_magnitudes(magnitudes: tuple[int, ...]) -> None:
    count = len(magnitudes)
    ascending = list(magnitudes) == sorted(set(magnitudes)) and min(magnitudes, default=-1) >= 0
    if not ascending or count & (count - 1) or magnitudes[-1] == 0:
        raise ValueError(f"magnitudes {magnitudes}: choose 1, 2, 4 … of them, ascending, none negative, the last not 0")


def check_messages(rows: Tensor, num_bytes: int) -> None:
    """``[messages, bytes]`` in the processor's memory, the bytes of a message side by side."""
    _check_bytes(rows, 2, torch.device("cpu"))
    if not 0 <= num_bytes <= rows.shape[1] or (rows.shape[1] > 1 and rows.stride(1) != 1):
        raise ValueError(f"messages {tuple(rows.shape)}, {rows.stride()} apart, have no {num_bytes} bytes side by side")


def check_direction(direction: Direction, device: torch.device) -> None:
    """Raise unless the payload has the width of its kind."""
    kind, payload, dtype = direction
    _check_bytes(payload, 2, device)
    widths = _widths(kind, dtype)
    if payload.shape[1] not in widths:
        needed = f"{widths[0]}" if len(widths) == 1 else f"{widths[0]}, {widths[1]}…"
        raise ValueError(f"a direction of {kind!r} has {needed} bytes a block, not {payload.shape[1]}")


@cache
def _widths(kind: str, dtype: torch.dtype) -> Sequence[int]:
    """Bytes that a block of a direction may have."""
    if kind == "signs":
        return (PLANE_BYTES, 2 * PLANE_BYTES)
    if kind == "counts":
        return range(PLANE_BYTES, (MAX_COUNT_PLANES + 1) * PLANE_BYTES, PLANE_BYTES)
    if kind == "values":
        return (BLOCK * torch.float32.itemsize,)
    if kind == "sign-of" and dtype in NUMBERS:
        return (BLOCK * dtype.itemsize,)
    raise ValueError(f"a direction of {kind!r} ({dtype}): choose signs, counts, values, or sign-of with a float type")


def check_moves(moves: Sequence[Move], direction: Direction, device: torch.device | None = None) -> None:
    if not moves:
        return
    device = device or moves[0].x.device
    check_direction(direction, device)
    end = len(direction.payload) * BLOCK
    for move in moves:
        length = move.x.numel()
        if not 0 <= move.start <= end - length:
            raise ValueError(f"elements {move.start} to {move.start + length} are not in a direction of {end}")
        _check_tensors((move.x, move.m, move.g), length, device)


def check_strides(strides: Sequence[Stride], device: torch.device | None = None) -> None:
    for stride in strides:
        device = device or stride.x.device
        _check_tensors(stride[:3], stride.x.numel(), device)


def check_cuts(payload: Tensor, direction: Direction, cuts: Sequence[Cut], device: torch.device | None = None) -> None:
    """A payload ``[blocks, bytes]`` or ``[shards, blocks, bytes]`` against a direction made of bit planes."""
    device = device or payload.device
    check_direction(direction, device)
    _check_bytes(payload, 3 if payload.dim() == 3 else 2, device)
    *shape, width = payload.shape
    if direction.kind not in ("signs", "counts") or not width or width % PLANE_BYTES:
        raise ValueError(f"signs and counts can be compared with planes, not {direction.kind!r} with {width} bytes")
    blocks, end = len(direction.payload), len(direction.payload) * BLOCK
    if torch.Size(shape).numel() != blocks or any(not 0 <= cut.start <= cut.stop <= end for cut in cuts):
        raise ValueError(f"cuts {cuts} are not in payloads of {torch.Size(shape).numel()} and {blocks} blocks")


def _check_bytes(payload: Tensor, dim: int, device: torch.device) -> None:
    if payload.dtype != torch.uint8 or payload.dim() != dim or not _is_on(payload, device):
        raise ValueError(
            f"a payload of bytes (torch.uint8) with {dim} dimensions on {device} is needed, not {payload.dtype} "
            f"{tuple(payload.shape)} on {payload.device}"
        )


def _check_tensors(tensors: Collection[Tensor | None], length: int, device: torch.device) -> None:
    for tensor in tensors:
        if tensor is not None and (tensor.numel() != length or not _is_on(tensor, device)):
            raise ValueError(
                f"a tensor of {length} elements on {device} is needed, not {tensor.numel()} on {tensor.device}"
            )


def _is_on(tensor: Tensor, device: torch.device) -> bool:
    """A device without a number is any of its kind."""
    return tensor.device == device or str(device) == tensor.device.type
