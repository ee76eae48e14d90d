"""How a vector of numbers becomes a message: float32, bfloat16, or floats of 4 bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import torch
from torch import Tensor

from lioncub.errors import ConfigError
from lioncub.tools.study.baselines.packing import (
    pack,
    pack_bfloat16,
    pack_floats,
    packed_bytes,
    unpack,
    unpack_bfloat16,
    unpack_floats,
)

Precision = Literal["float32", "bfloat16", "float4"]

_SIGN, _LARGEST = 8, 7
_MAGNITUDES = torch.tensor([0.0, *(2.0 ** (code - _LARGEST) for code in range(1, _LARGEST + 1))])
_VALUES = torch.cat([_MAGNITUDES, -_MAGNITUDES])  # of the 16 codes


class Format(Protocol):
    """A way to write a vector, of a length that both sides know."""

    def encode(self, vector: Tensor) -> bytes: ...

    def decode(self, message: bytes) -> Tensor: ...


class Float32:
    """32 bits an entry, exact."""

    def encode(self, vector: Tensor) -> bytes:
        return pack_floats(vector)

    def decode(self, message: bytes) -> Tensor:
        return unpack_floats(message)


class BFloat16:
    """16 bits an entry."""

    def encode(self, vector: Tensor) -> bytes:
        return pack_bfloat16(vector)

    def decode(self, message: bytes) -> Tensor:
        return unpack_bfloat16(message)


class Float4:
    """1 sign and 3 exponent bits an entry (E3M0), relative to the largest magnitude of its tensor, a float32 each.

    The codes of an exponent are 0 and 1/64, 1/32, …, 1/2, 1; an entry takes the nearest.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = list(sizes)
        self.numel = sum(self.sizes)
        self.message_bytes = 4 * len(self.sizes) + packed_bytes(self.numel, 4)

    def encode(self, vector: Tensor) -> bytes:
        parts = vector.split(self.sizes)
        scales = torch.stack([part.abs().amax() if len(part) else torch.zeros(()) for part in parts])
        relative = vector / torch.repeat_interleave(torch.where(scales > 0, scales, 1.0), torch.tensor(self.sizes))
        return pack_floats(scales) + pack(codes(relative).numpy(), 4)

    def decode(self, message: bytes) -> Tensor:
        codes_at = 4 * len(self.sizes)
        values = _VALUES[torch.from_numpy(unpack(message[codes_at:], self.numel, 4))]
        return values * torch.repeat_interleave(unpack_floats(message[:codes_at]), torch.tensor(self.sizes))


def codes(relative: Tensor) -> Tensor:
    """The code, 0 to 15, of the 4-bit float that is nearest to each value of -1 to 1; midpoints go up."""
    mantissa, exponent = torch.frexp(relative.abs())  # mantissa · 2^exponent, mantissa from 1/2 to 1
    nearest = _LARGEST + exponent - (mantissa < 0.75).int()
    smallest = relative.abs() >= 2.0**-_LARGEST
    code = torch.where(smallest, nearest.clamp(1, _LARGEST), 0)
    return (code + _SIGN * torch.signbit(relative).int()).to(torch.uint8)


def format_of(precision: Precision, sizes: Sequence[int]) -> Format:
    """The format by name, for tensors of so many entries."""
    if precision == "float32":
        return Float32()
    if precision == "bfloat16":
        return BFloat16()
    if precision == "float4":
        return Float4(sizes)
    raise ConfigError(f'a message of {precision!r} numbers: choose "float32", "bfloat16" or "float4"')
