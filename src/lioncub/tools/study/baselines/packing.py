"""Numbers as bytes: small integers bit by bit, trits five to a byte, floats as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

TRITS_PER_BYTE = 5  # 3⁵ = 243 of 256
_TRITS = (np.arange(256)[:, None] // 3 ** np.arange(TRITS_PER_BYTE) % 3 - 1).astype(np.int8)  # a byte's five trits


def packed_bytes(count: int, bits: int) -> int:
    """How many bytes ``count`` integers of ``bits`` bits take."""
    return -(-count * bits // 8)


def pack(values: NDArray[Any], bits: int) -> bytes:
    """Integers of 0 to 2^bits - 1, ``bits`` bits each, one after another; the last byte is filled with zeros."""
    if bits == 1:
        return np.packbits(values, bitorder="little").tobytes()
    planes = np.empty((len(values), bits), np.uint8)
    for bit in range(bits):
        planes[:, bit] = values >> bit & 1
    return np.packbits(planes, bitorder="little").tobytes()


def unpack(message: bytes, count: int, bits: int) -> NDArray[Any]:
    """What :func:`pack` packed: ``uint8`` for one bit each, else ``int32``."""
    planes = np.unpackbits(np.frombuffer(message, np.uint8), count=count * bits, bitorder="little")
    if bits == 1:
        return planes
    values = np.zeros(count, np.int32)
    for bit in range(bits):
        values |= planes[bit::bits].astype(np.int32) << bit
    return values


def trit_bytes(count: int) -> int:
    """How many bytes ``count`` trits take."""
    return -(-count // TRITS_PER_BYTE)


def pack_trits(trits: NDArray[Any]) -> bytes:
    """-1, 0, 1, five to a byte: 1.6 bits each, where log2(3) = 1.585 is the least."""
    digits = np.zeros(trit_bytes(len(trits)) * TRITS_PER_BYTE, np.uint8)
    digits[: len(trits)] = trits + 1
    packed = digits[::TRITS_PER_BYTE].copy()
    for place in range(1, TRITS_PER_BYTE):
        packed += digits[place::TRITS_PER_BYTE] * np.uint8(3**place)
    return packed.tobytes()


def unpack_trits(message: bytes, count: int) -> NDArray[np.int8]:
    """What :func:`pack_trits` packed."""
    trits: NDArray[np.int8] = _TRITS.take(np.frombuffer(message, np.uint8), axis=0).reshape(-1)
    return trits[:count]


def pack_floats(values: Tensor) -> bytes:
    """float32, 4 bytes each."""
    return values.numpy().tobytes()


def unpack_floats(message: bytes) -> Tensor:
    """What :func:`pack_floats` packed."""
    return torch.frombuffer(bytearray(message), dtype=torch.float32) if message else torch.zeros(0)


def pack_bfloat16(values: Tensor) -> bytes:
    """Rounded to bfloat16, 2 bytes each."""
    return values.to(torch.bfloat16).view(torch.int16).numpy().tobytes()


def unpack_bfloat16(message: bytes) -> Tensor:
    """What :func:`pack_bfloat16` packed, as float32."""
    return torch.frombuffer(bytearray(message), dtype=torch.bfloat16).float() if message else torch.zeros(0)


def pack_signs(values: Tensor, step: int) -> bytes:
    """One bit each. Zero has no sign: as in the library it is sent as ±1, alternating with step and coordinate."""
    x = values.numpy()
    positive = x > 0
    zeros = np.flatnonzero(x == 0)
    positive[zeros] = (zeros + step) % 2 == 1
    return pack(positive, 1)


def unpack_signs(message: bytes, count: int) -> Tensor:
    """±1 of :func:`pack_signs`, as float32."""
    return torch.from_numpy(unpack(message, count, 1)).float().mul_(2).sub_(1)
