"""A mostly zero vector as bytes, and which entries to keep: what DGC sends."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lioncub.tools.study.baselines.packing import pack_floats, unpack_floats

SKIP = 255  # so many zeros and no value after them
_DENSE, _SPARSE = b"\0", b"\1"
_HEADER_BYTES = 5


def encode(vector: Tensor) -> bytes:
    """The entries that are not zero, or all of them, whichever is shorter.

    Sparse: one byte says that it is, four how many gaps there are; then the gaps, the values as float32. A gap is
    the number of zeros before a value, one byte; 255 zeros more are a byte 255. With d entries of which k are not
    zero that is 5k bytes, at most d/255 more, and 5.
    """
    x = vector.numpy()
    places = np.flatnonzero(x)
    zeros = np.diff(places, prepend=-1) - 1
    skips = zeros // SKIP
    num_gaps = len(places) + int(skips.sum())
    if _HEADER_BYTES + num_gaps + 4 * len(places) > 4 * len(x):
        return _DENSE + pack_floats(vector)
    gaps = np.full(num_gaps, SKIP, np.uint8)
    gaps[np.cumsum(skips + 1) - 1] = zeros % SKIP
    return _SPARSE + num_gaps.to_bytes(4, "little") + gaps.tobytes() + x[places].tobytes()


def decode(message: bytes, numel: int) -> Tensor:
    """The vector that :func:`encode` was given."""
    if message[:1] == _DENSE:
        return unpack_floats(message[1:])
    values_at = _HEADER_BYTES + int.from_bytes(message[1:_HEADER_BYTES], "little")
    gaps = np.frombuffer(message[_HEADER_BYTES:values_at], np.uint8)
    ends = np.cumsum(np.where(gaps == SKIP, SKIP, gaps.astype(np.int64) + 1))
    vector = torch.zeros(numel)
    vector[torch.from_numpy(ends[gaps != SKIP] - 1)] = unpack_floats(message[values_at:])
    return vector


def num_kept(numel: int, density: float) -> int:
    """How many of ``numel`` entries are sent: at least one."""
    return min(numel, max(1, round(density * numel)))


def largest(vector: Tensor, count: int) -> NDArray[Any]:
    """Where the ``count`` entries of largest magnitude are, in no order."""
    magnitudes = np.abs(vector.numpy())
    if count == len(magnitudes):
        return np.arange(count)
    return np.argpartition(magnitudes, len(magnitudes) - count)[len(magnitudes) - count :]
