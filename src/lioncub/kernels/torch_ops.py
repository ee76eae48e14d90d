"""The passes over memory in torch and numpy operations: any device, no compiler."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

BITS_SET = np.unpackbits(np.arange(256, dtype=np.uint8)).reshape(256, 8).sum(1)
CHUNK = 1 << 15  # elements: 128 KiB of float32 stay in cache, and torch never splits one over threads


def in_cache(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Tensors of one shape in matching flat chunks that stay in cache from one operation to the next.

    Tensors in different memory orders come as they are, in one piece.
    """
    if not all(tensor.is_contiguous() for tensor in tensors):
        yield tensors
        return
    yield from zip(*(tensor.view(-1).split(CHUNK) for tensor in tensors), strict=True)


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


def count_bits(packed: Tensor, start: int, stop: int) -> int:
    """How many of the bits ``start`` to ``stop`` of packed bytes are set."""
    whole = packed[-(-start // 8) : stop // 8].cpu().numpy()
    edges = [*range(start, min(-(-start // 8) * 8, stop)), *range(max(stop // 8 * 8, start), stop)]
    ones: int = sum(int(packed[bit // 8]) >> bit % 8 & 1 for bit in dict.fromkeys(edges))
    return ones + int(BITS_SET[whole].sum(dtype=np.int64))


def pack_bits_anywhere(bits: Tensor) -> Tensor:
    positions = torch.arange(8, dtype=torch.uint8, device=bits.device)
    return (bits.to(torch.uint8).view(-1, 8) << positions).sum(1, dtype=torch.uint8)


def unpack_bits_anywhere(packed: Tensor) -> Tensor:
    positions = torch.arange(8, dtype=torch.uint8, device=packed.device)
    return ((packed.reshape(-1, 1) >> positions) & 1).view(-1)


def sign_bits(u: Tensor, starts: Sequence[int], step: int) -> Tensor:
    """``u > 0`` as booleans; a zero alternates with the step and the coordinate inside its tensor.

    ``starts`` are the offsets of the tensors inside ``u``.
    """
    bits = u > 0
    zeros = u == 0
    if not bool(zeros.any()):
        return bits
    where = zeros.nonzero().view(-1)
    offsets = torch.tensor(list(starts), dtype=where.dtype, device=where.device)
    coordinate = where - offsets[torch.searchsorted(offsets, where, right=True) - 1]
    bits[where] = (coordinate + step) % 2 == 1
    return bits


def all_finite(u: Tensor) -> bool:
    """Whether ``u`` holds no NaN and no Inf. The sum is 30x cheaper and can only raise a false alarm, by overflow."""
    return bool(torch.isfinite(u.sum())) or bool(torch.isfinite(u).all())


def abs_sum(u: Tensor) -> Tensor:
    """Σ|u| in double precision, as a scalar tensor: chunk by chunk, so that threads cannot change the order."""
    total = torch.zeros((), dtype=torch.float64, device=u.device)
    for chunk in u.split(CHUNK):
        total += chunk.to(torch.float64).abs_().sum()
    return total


def fingerprint(tensor: Tensor, crc: int = 0) -> int:
    """CRC-32 of a tensor's bytes in logical order, continued from ``crc``."""
    data: Any = tensor.detach().reshape(-1).contiguous().cpu().view(torch.uint8).numpy()
    return zlib.crc32(data, crc)
