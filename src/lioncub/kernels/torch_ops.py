"""Every kernel in torch and numpy operations: any device, no compiler. What the other bodies equal bit for bit.

Work goes in chunks that stay in cache from one operation to the next, so nothing as large as the model is made.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lioncub.kernels.bits import as_numbers, count_bits, from_planes, packed_planes, signs, unpack_bits
from lioncub.kernels.bitsliced import count_ones, majority
from lioncub.kernels.checks import (
    check_cuts,
    check_messages,
    check_moves,
    check_quantiser,
    check_strides,
    check_update,
)
from lioncub.kernels.layout import BLOCK
from lioncub.kernels.operands import Cut, Direction, Encoded, Move, Noise, Part, Quantiser, Stride, UpdateVector
from lioncub.kernels.rounding import round_stochastically

__all__ = [
    "apply_",
    "checksums",
    "count_matches",
    "count_ones",
    "encode_levels",
    "encode_signs",
    "encode_values",
    "fingerprint",
    "lion_",
    "majority",
    "sample",
]

SUM_CHUNK = 1 << 15
"""Elements that are added up in one tree; see :func:`abs_sum`."""
CHUNK = 1 << 19
"""Elements: 2 MiB of float32 and what is made of them stay in cache, and enough for several threads to share."""
FAR_CHUNK = 1 << 24
"""On other devices launches cost more than cache misses."""


# ---- encoding ------------------------------------------------------------------------------------------------------


def encode_signs(u: UpdateVector, step: int, *, abstain: bool) -> Encoded:
    """u > 0 as a bit; a zero alternates with the step and the coordinate. ``abstain``: a second plane says u ≠ 0."""
    check_update(u)
    return _encode(
        u, lambda first, values, _: _sign_planes(u, values, first, step, abstain=abstain), 2 if abstain else 1
    )


def encode_levels(u: UpdateVector, step: int, quantiser: Quantiser) -> Encoded:
    """The sign plane of :func:`encode_signs`, then the planes of the magnitude's index."""
    check_quantiser(quantiser)
    check_update(u)
    scales = units(u, quantiser.scale)
    if not all(bool(torch.isfinite(scale)) for scale in scales):
        return Encoded(_empty(u, quantiser.bits), finite=False)

    def planes(first: int, values: Tensor, pieces: list[tuple[int, slice]]) -> list[Tensor]:
        r = torch.zeros_like(values)
        for number, piece in pieces:
            torch.div(values[piece].abs(), scales[number], out=r[piece])
        r.masked_fill_(values == 0, 0.0)
        index = quantised(r, quantiser)
        bits = [(index >> k) & 1 for k in range(quantiser.bits - 1)]
        return _sign_planes(u, values, first, step, abstain=False) + bits

    return _encode(u, planes, quantiser.bits)


def encode_values(u: UpdateVector, dtype: torch.dtype) -> Encoded:
    """The update vector itself, rounded to ``dtype``."""
    check_update(u)
    out = torch.empty(u.layout.padded_numel, dtype=dtype, device=u.device)
    finite = True
    for first, values, _ in _chunks(u):
        out[first : first + len(values)] = values
        finite = finite and all_finite(values)
    return Encoded(out.view(torch.uint8).view(u.layout.blocks, BLOCK * dtype.itemsize), finite)


def quantised(r: Tensor, quantiser: Quantiser) -> Tensor:
    """The index of the magnitude for r = |u| over the scale, as uint8."""
    grid, bits, scale, log2_base, _ = quantiser
    half = 0.5 if scale == "l1" else 1.0
    L = 1 << (bits - 1)
    if grid == "midtread":
        return r.mul_((L - 1) * half).round_().clamp_(max=L - 1).to(torch.uint8)
    if grid == "midrise":
        return r.mul_(L * half).floor_().clamp_(max=L - 1).to(torch.uint8)
    e = torch.div(floor_log2(r), log2_base, rounding_mode="floor").add_(quantiser.shift)
    return e.clamp_(0, L - 1).to(torch.uint8)


def floor_log2(r: Tensor) -> Tensor:
    """⌊log2 r⌋ for r ≥ 0: the exponent as it is stored, so that no logarithm can round across a level.

    Zero and subnormals come out as the smallest exponent, infinity as the largest.
    """
    if r.dtype == torch.float64:
        return (r.view(torch.int64) >> 52) - 1023
    return (r.view(torch.int32) >> 23) - 127


def all_finite(u: Tensor) -> bool:
    """Whether ``u`` holds no NaN and no Inf. The sum is 30x cheaper and can only raise a false alarm, by overflow."""
    return bool(torch.isfinite(u.sum())) or bool(torch.isfinite(u).all())


def abs_sum(values: Tensor) -> Tensor:
    """Σ|u| of at most ``SUM_CHUNK`` elements in double precision, in an order that every body can follow.

    Rows of 64 elements, zeros where the last is short, are added in pairs, then the sums in pairs, and so on; then the
    64 lanes by halves.
    """
    rows = torch.zeros(SUM_CHUNK // BLOCK, BLOCK, dtype=torch.float64, device=values.device)
    rows.view(-1)[: len(values)] = values.abs()
    while len(rows) > 1:
        rows = rows[0::2] + rows[1::2]
    lanes = rows[0]
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    return lanes[0]


def units(u: UpdateVector, scale: str) -> list[Tensor]:
    """The scale of every part, as scalar tensors."""
    return [_unit(u, number, scale) for number in range(len(u.parts))]


def _unit(u: UpdateVector, number: int, scale: str) -> Tensor:
    """The scale of one part: mean|u|, summed chunk after chunk in double precision, or max|u|."""
    part, length = u.parts[number], u.layout.lengths[number]
    total = torch.zeros((), dtype=torch.float64 if scale == "l1" else u.dtype, device=u.device)
    values = torch.empty(min(SUM_CHUNK, length), dtype=u.dtype, device=u.device)
    for first in range(0, length if part.m is not None else 0, SUM_CHUNK):
        chunk = _values(part, first, min(first + SUM_CHUNK, length), values)
        total = total + abs_sum(chunk) if scale == "l1" else torch.maximum(total, chunk.abs().amax())
    return (total / torch.tensor(max(length, 1), device=u.device)).to(u.dtype) if scale == "l1" else total


def _encode(u: UpdateVector, planes: Any, num_planes: int) -> Encoded:
    payload = _empty(u, num_planes)
    finite = True
    for first, values, pieces in _chunks(u):
        finite = finite and all_finite(values)
        from_planes(planes(first, values, pieces), out=payload[first // BLOCK : (first + len(values)) // BLOCK])
    return Encoded(payload, finite)


def _empty(u: UpdateVector, num_planes: int) -> Tensor:
    return torch.empty(u.layout.blocks, num_planes * BLOCK // 8, dtype=torch.uint8, device=u.device)


def _sign_planes(u: UpdateVector, values: Tensor, first: int, step: int, *, abstain: bool) -> list[Tensor]:
    positive, zero, any_zero = signs(values)
    if any_zero:
        where = zero.nonzero().view(-1)
        starts = torch.tensor(u.layout.starts, device=u.device)
        element = where + first
        coordinate = element - starts[torch.searchsorted(starts, element, right=True) - 1]
        positive[where] = (coordinate + step) % 2 == 1
    return [positive, ~zero] if abstain else [positive]


def _chunks(u: UpdateVector) -> Iterator[tuple[int, Tensor, list[tuple[int, slice]]]]:
    """The update vector chunk by chunk: its first element, the values, and which part lies where in it.

    All chunks share their memory: each is to be used before the next is asked for.
    """
    size = CHUNK if u.device.type == "cpu" else FAR_CHUNK
    starts, lengths = u.layout.starts, u.layout.lengths
    buffer = torch.empty(min(size, u.layout.padded_numel), dtype=u.dtype, device=u.device)
    for first in range(0, u.layout.padded_numel, size):
        last = min(first + size, u.layout.padded_numel)
        values = buffer[: last - first]
        if last > u.layout.numel:
            values.zero_()  # the padding
        pieces = []
        for number in range(max(bisect_right(starts, first) - 1, 0), bisect_right(starts, last - 1)):
            start, stop = max(starts[number], first), min(starts[number] + lengths[number], last)
            if start < stop:
                piece = slice(start - first, stop - first)
                pieces.append((number, piece))
                within = slice(start - starts[number], stop - starts[number])
                _values(u.parts[number], within.start, within.stop, values[piece])
                write_next(u.parts[number], within)
        yield first, values, pieces


def _values(part: Part, first: int, last: int, out: Tensor) -> Tensor:
    """u = beta·m + gain·g of elements ``first`` to ``last`` of a part, written to the start of ``out``."""
    out = out[: last - first]
    if part.m is None:
        return out.zero_()
    m = part.m.reshape(-1)[first:last]
    if part.g is None:
        return out.copy_(m)
    g = part.g.reshape(-1)[first:last]
    if m.dtype != out.dtype:
        return blend_(out.copy_(m), g, part.beta, part.gain)
    return torch.mul(m, part.beta, out=out).add_(g.to(out.dtype) * part.gain)


def write_next(part: Part, within: slice) -> None:
    """The momentum after this step, where the part asks for it."""
    if part.next_m is None or part.m is None or part.g is None:
        return
    m, g = part.m.reshape(-1)[within], part.g.reshape(-1)[within]
    wide = m.to(torch.float64 if m.dtype == torch.float64 else torch.float32, copy=True)
    _store(part.next_m.view(-1), within, blend_(wide, g, part.next_beta, part.next_gain), None)


def blend_(m: Tensor, g: Tensor, beta: float, gain: float) -> Tensor:
    """m ← beta·m + gain·g in the precision of ``m``, each operation rounded once."""
    return m.mul_(beta).add_(g.to(m.dtype) * gain)


# ---- moving --------------------------------------------------------------------------------------------------------


def apply_(moves: Sequence[Move], direction: Direction) -> None:
    """Move every x along its part of the direction, and advance every m that is given."""
    check_moves(moves, direction)
    for move in moves:
        x, m = _flat(move.x), None if move.m is None else _flat(move.m)
        g = None if move.g is None else move.g.reshape(-1)
        for first in range(0, len(x), CHUNK):
            part = slice(first, min(first + CHUNK, len(x)))
            toward = direction_values(direction, move.start + part.start, move.start + part.stop, move.num_voters)
            if m is not None and g is not None:  # first, for g may be x itself
                _store(m, part, blend_(_wide(m[part]), g[part], move.beta, move.gain), None)
            wide = _wide(x[part])
            wide.mul_(move.decay).sub_(toward.to(wide.dtype) * move.lr)
            _store(x, part, wide, move.noise)
        _restore(move.x, x)
        if m is not None and move.m is not None:
            _restore(move.m, m)


def lion_(strides: Sequence[Stride]) -> int:
    """Plain Lion; returns how many elements stayed because their u is not finite."""
    check_strides(strides)
    skipped = 0
    for stride in (each.in_memory_order() for each in strides):
        x, m, g = _flat(stride.x), _flat(stride.m), stride.g.reshape(-1)
        for first in range(0, len(x), CHUNK):
            part = slice(first, min(first + CHUNK, len(x)))
            wide, momentum = _wide(x[part]), _wide(m[part])
            u = blend_(momentum.clone(), g[part], stride.beta1, stride.gain1)
            before = None if all_finite(u) else (x[part].clone(), m[part].clone())
            _store(m, part, blend_(momentum, g[part], stride.beta2, stride.gain2), None)  # first, for g may be x itself
            wide.mul_(stride.decay).sub_(torch.sign(u) * stride.lr)
            _store(x, part, wide, stride.noise)
            if before is not None:
                finite = torch.isfinite(u)
                torch.where(finite, x[part], before[0], out=x[part])
                torch.where(finite, m[part], before[1], out=m[part])
                skipped += len(u) - int(finite.sum())
        _restore(stride.x, x)
        _restore(stride.m, m)
    return skipped


def direction_values(direction: Direction, start: int, stop: int, num_voters: int) -> Tensor:
    """Elements ``start`` to ``stop`` of the direction, float32."""
    first = start // BLOCK
    blocks = direction.payload[first : -(-stop // BLOCK)]
    part = slice(start - first * BLOCK, stop - first * BLOCK)
    if direction.kind == "values":
        return as_numbers(blocks, torch.float32).reshape(-1)[part]
    if direction.kind == "sign-of":
        return torch.sign(as_numbers(blocks, direction.dtype).reshape(-1)[part].to(torch.float32))
    planes = [unpack_bits(plane)[part].to(torch.float32) for plane in packed_planes(blocks)]
    if direction.kind == "signs":
        sign = planes[0].mul_(2).sub_(1)
        return sign if len(planes) == 1 else torch.where(planes[1] > 0, sign, 0.0)
    count = planes[0]
    for k, plane in enumerate(planes[1:], start=1):
        count += plane * 2**k
    # By a tensor: dividing by a number, CUDA multiplies by its reciprocal, which rounds twice.
    return count.mul_(2).sub_(num_voters).div_(torch.tensor(float(max(num_voters, 1)), device=count.device))


def _wide(values: Tensor) -> Tensor:
    """A copy, or the tensor itself, in the precision that is computed in."""
    return values if values.dtype == torch.float64 else values.to(torch.float32)


def _store(x: Tensor, part: slice, wide: Tensor, noise: Noise | None) -> None:
    if wide.data_ptr() == x[part].data_ptr():
        return
    x[part] = round_stochastically(wide, noise, part.start) if noise is not None and x.dtype == torch.bfloat16 else wide
    if not all_finite(wide):  # torch's conversions do not agree on the bits of NaN
        x[part].masked_fill_(torch.isnan(wide), float("nan"))


def _flat(tensor: Tensor) -> Tensor:
    """Flat and contiguous: a view where possible, else a copy that :func:`_restore` writes back."""
    return tensor.reshape(-1)


def _restore(tensor: Tensor, flat: Tensor) -> None:
    if tensor.data_ptr() != flat.data_ptr():
        tensor.copy_(flat.view(tensor.shape))


# ---- looking back --------------------------------------------------------------------------------------------------


def count_matches(payload: Tensor, direction: Direction, cuts: Sequence[Cut], *, own_zeros: bool) -> int:
    """On how many elements of the cuts a sign-magnitude payload points where the direction points.

    ``payload [blocks, bytes]``, or in shards as it was sent, ``[shards, blocks, bytes]``; the direction is whole.
    ``own_zeros``: index 0 of the payload means zero, which points nowhere.
    """
    check_cuts(payload, direction, cuts)
    payload = payload.reshape(-1, payload.shape[-1])
    mine, *index = packed_planes(payload)
    total = 0
    for start, stop, num_voters in cuts:
        for first in range(start // CHUNK * CHUNK, stop, CHUNK):
            blocks = slice(first // BLOCK, min((first + CHUNK) // BLOCK, len(payload)))
            same = _matches(
                mine[blocks],
                [plane[blocks] for plane in index] if own_zeros else None,
                packed_planes(direction.payload[blocks]),
                num_voters if direction.kind == "counts" else None,
            )
            total += count_bits(same.reshape(-1), max(start - first, 0), min(stop - first, CHUNK))
    return total


def _matches(sign: Tensor, index: list[Tensor] | None, outcome: Sequence[Tensor], num_voters: int | None) -> Tensor:
    ones = torch.full_like(sign, 255)
    if num_voters is None:
        theirs, moves = outcome[0], outcome[1] if len(outcome) > 1 else ones
    else:
        theirs, moves = _more_than_half(outcome, num_voters)
    i_move = ones if index is None else torch.zeros_like(ones)
    for plane in index or ():
        i_move |= plane
    return (~(sign ^ theirs) & i_move & moves) | ~(i_move | moves)


def _more_than_half(count: Sequence[Tensor], num_voters: int) -> tuple[Tensor, Tensor]:
    """Where 2·count > V, and where 2·count ≠ V, from the count's bit planes."""
    ones = torch.full_like(count[0], 255)
    equal, greater = ones, ones ^ ones
    for k in reversed(range(len(count))):
        if num_voters // 2 >> k & 1:
            equal = equal & count[k]
        else:
            greater = greater | (equal & count[k])
            equal = equal & ~count[k]
    return greater, ones if num_voters % 2 else ~equal


def fingerprint(tensor: Tensor, crc: int = 0, *, first: int = 0, last: int | None = None) -> int:
    """CRC-32 of the bytes of a tensor's elements ``first`` to ``last`` in logical order, continued from ``crc``."""
    flat = tensor.detach().reshape(-1)[first:last].cpu()
    if flat.stride(0) != 1:  # a single element counts as contiguous whatever its stride, but not for view()
        flat = flat.clone(memory_format=torch.contiguous_format)
    data: Any = flat.view(torch.uint8).numpy()
    return zlib.crc32(data, crc)


def checksums(rows: Tensor, num_bytes: int) -> list[int]:
    """CRC-32 of the first ``num_bytes`` of every message in ``[messages, bytes]``."""
    check_messages(rows, num_bytes)
    return [zlib.crc32(row) for row in np.ascontiguousarray(rows.numpy()[:, :num_bytes])]


SAMPLED_ROWS, SAMPLED_COLUMNS = 32, 64


def sample(tensor: Tensor) -> int:
    """CRC-32 of a small tensor, and of pieces all over a large one.

    Clipping or scaling a gradient changes those too, and reading all of it would cost as much as encoding it.
    """
    flat = tensor.detach()
    if tensor.numel() > SAMPLED_ROWS * SAMPLED_COLUMNS and tensor.is_contiguous():
        apart = (tensor.numel() - SAMPLED_COLUMNS) // (SAMPLED_ROWS - 1)
        flat = flat.as_strided((SAMPLED_ROWS, SAMPLED_COLUMNS), (apart, 1), flat.storage_offset())
    return fingerprint(flat)
