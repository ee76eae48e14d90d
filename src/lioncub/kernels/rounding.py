"""Stochastic rounding to bfloat16, with randomness that every replica can repeat.

The 16 bits that bfloat16 drops are compared with 16 bits of a hash of (seed, tensor, step, coordinate): a number
between two neighbours goes up with the probability of its distance from the lower one. Small updates then survive on
average, where rounding to nearest would lose every one of them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lioncub.kernels.operands import Noise

MASK64 = (1 << 64) - 1


def mixed(x: int) -> int:
    """The finaliser of splitmix64, a bijection of 64 bits."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK64
    return x ^ x >> 31


def noise_key(seed: int, tensor: int, step: int) -> Noise:
    """The key for one tensor at one step."""
    key = mixed(mixed(mixed(seed & MASK64) + tensor + 1 & MASK64) + step + 1 & MASK64)
    return Noise(key & 0xFFFFFFFF, key >> 32)


def hashed(coordinates: Tensor, noise: Noise) -> Tensor:
    """16 bits for each coordinate (below 2^63), int64: two rounds of xor-shift and multiply on 32-bit words."""
    mask = 0xFFFFFFFF
    high = coordinates >> 32
    x = (coordinates ^ noise.low ^ high * 0x9E3779B9) & mask
    x = (x ^ x >> 16) * 0x21F0AAAD & mask
    x = (x ^ x >> 15) + noise.high & mask
    x = x * 0x735A2D97 & mask
    return (x ^ x >> 15) >> 16


def round_stochastically(wide: Tensor, noise: Noise, first: int = 0) -> Tensor:
    """float32 to bfloat16; ``first`` is the coordinate of the first element. NaN stays NaN."""
    coordinates = torch.arange(first, first + wide.numel(), device=wide.device).view(wide.shape)
    bits = wide.view(torch.int32).to(torch.int64) & 0xFFFFFFFF
    rounded = (bits + hashed(coordinates, noise)) >> 16 & 0xFFFF
    rounded = torch.where(torch.isnan(wide), 0x7FC0, rounded)
    return torch.where(rounded >= 0x8000, rounded - 0x10000, rounded).to(torch.int16).view(torch.bfloat16)
