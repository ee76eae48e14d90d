"""Bits in bytes: planes of a payload, packed and unpacked.

Plane k of a block of 64 elements is its k-th group of 8 bytes; the first element is the lowest bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from lioncub.kernels.layout import BLOCK

BITS_SET = np.unpackbits(np.arange(256, dtype=np.uint8)).reshape(256, 8).sum(1)


def signs(values: Tensor) -> tuple[Tensor, Tensor, bool]:
    """Masks of positive values and of zeros, and whether there is a zero; numpy compares several times as fast."""
    if values.device.type == "cpu":
        numbers = values.numpy()
        zeros = numbers == 0
        return torch.from_numpy(numbers > 0), torch.from_numpy(zeros), bool(zeros.any())
    zero = values == 0
    return values > 0, zero, bool(zero.any())


def pack_bits(bits: Tensor) -> Tensor:
    """8 booleans to a byte, the first in the lowest bit. ``bits`` is bool or 0/1 uint8, numel a multiple of 8."""
    if bits.device.type == "cpu":
        return torch.from_numpy(np.packbits(bits.contiguous().numpy(), bitorder="little"))
    return pack_bits_anywhere(bits)


def unpack_bits(packed: Tensor) -> Tensor:
    """The inverse of :func:`pack_bits`: 0/1 as uint8, flat."""
    if packed.device.type == "cpu":
        return torch.from_numpy(np.unpackbits(packed.reshape(-1).numpy(), bitorder="little"))
    return unpack_bits_anywhere(packed)


def pack_bits_anywhere(bits: Tensor) -> Tensor:
    positions = torch.arange(8, dtype=torch.uint8, device=bits.device)
    return (bits.to(torch.uint8).view(-1, 8) << positions).sum(1, dtype=torch.uint8)


def unpack_bits_anywhere(packed: Tensor) -> Tensor:
    positions = torch.arange(8, dtype=torch.uint8, device=packed.device)
    return ((packed.reshape(-1, 1) >> positions) & 1).view(-1)


def count_bits(packed: Tensor, start: int, stop: int) -> int:
    """The number of ones among the bits ``start`` to ``stop`` of packed bytes."""
    if start >= stop:
        return 0
    chosen = packed[start // 8 : -(-stop // 8)].cpu().numpy().copy()
    chosen[0] &= 0xFF << start % 8 & 0xFF
    if stop % 8:
        chosen[-1] &= 0xFF >> (8 - stop % 8)
    return int(BITS_SET[chosen].sum(dtype=np.int64))


def packed_planes(payload: Tensor) -> tuple[Tensor, ...]:
    """The bit planes of a payload as they are, ``[blocks, 8]`` each."""
    return payload.view(len(payload), payload.shape[1] * 8 // BLOCK, BLOCK // 8).unbind(1)


def planes(payload: Tensor) -> list[Tensor]:
    """The bit planes of a payload, unpacked."""
    return [unpack_bits(plane) for plane in packed_planes(payload)]


def from_planes(bits: Sequence[Tensor], out: Tensor | None = None) -> Tensor:
    """Pack bit planes ``[blocks · 64]`` into a payload ``[blocks, 8 · planes]``."""
    if out is None:
        out = torch.empty(len(bits[0]) // BLOCK, len(bits) * BLOCK // 8, dtype=torch.uint8, device=bits[0].device)
    for plane, place in zip(bits, packed_planes(out), strict=True):
        place.copy_(pack_bits(plane).view(-1, BLOCK // 8))
    return out


def words(payload: Tensor) -> Tensor:
    """A payload ``[…, bytes]`` as words of 64 bits, ``int64 […, planes]``: a view where alignment allows."""
    return as_numbers(payload, torch.int64)


def as_numbers(payload: Tensor, dtype: torch.dtype) -> Tensor:
    """A payload ``[…, bytes]`` as numbers: a view where memory order and alignment allow."""
    *strides, step = payload.stride()
    aligned = step == 1 and all(offset % dtype.itemsize == 0 for offset in (payload.storage_offset(), *strides))
    return (payload if aligned else payload.clone(memory_format=torch.contiguous_format)).view(dtype)
