"""The kernels in Triton, for CUDA and ROCm tensors: one launch for each tensor, span or cut.

``import lioncub`` must not import Triton, which takes a while and may be missing: the first launch does. What is
computed in float64 is left to :mod:`~lioncub.kernels.torch_ops`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from lioncub.kernels import torch_ops
from lioncub.kernels.checks import (
    check_ballot,
    check_cuts,
    check_moves,
    check_quantiser,
    check_strides,
    check_tally,
    check_update,
)
from lioncub.kernels.layout import BLOCK, Ballot, Span
from lioncub.kernels.operands import Cut, Direction, Encoded, Move, Noise, Part, Quantiser, Stride, Tally, UpdateVector
from lioncub.kernels.torch_ops import SUM_CHUNK, checksums, fingerprint, sample

__all__ = [
    "apply_",
    "checksums",
    "count_matches",
    "count_ones",
    "encode_levels",
    "encode_signs",
    "encode_values",
    "fingerprint",  # torch_ops': CRC-32 runs on the CPU anyway
    "lion_",
    "majority",
    "sample",
    "why_not",
]

OLDEST = (3, 4)
"""Older Tritons cannot index a tuple of constants."""
WORD = 32
ELEMENTS = 1024
"""The elements of a program that works element by element."""
TILE_WORDS = 64
"""The words of a program that makes each of 32 elements."""
WORDS = 256
"""The words of a program that works word by word."""
ROWS_ADDED = 32
"""The neighbouring rows that one thread adds, as triton_kernels.NEIGHBOURS."""
ROW_SUMS = 128
"""The sums of a program, one for each thread."""
UNROLLED = 16
"""Loads in flight where numbers are added one after the other."""


@cache
def why_not() -> str:
    """Why Triton's kernels cannot be used here; "" where they can."""
    if find_spec("triton") is None:
        return "Triton is not installed"
    if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        return "there is no CUDA or ROCm device"
    try:
        import triton
    except ImportError as error:
        return f"Triton cannot be imported: {error}"
    if tuple(int(number) for number in triton.__version__.split(".")[:2]) < OLDEST:
        return f"Triton {triton.__version__} is older than {OLDEST[0]}.{OLDEST[1]}"
    return ""


# ---- encoding ------------------------------------------------------------------------------------------------------


def encode_signs(u: UpdateVector, step: int, *, abstain: bool) -> Encoded:
    if u.dtype != torch.float32:
        return torch_ops.encode_signs(u, step, abstain=abstain)
    check_update(u)
    grid = {"GRID": "nonzero" if abstain else "none", "SCALE": "none", "LOG2_BASE": 1, "SHIFT": 0}
    return _encode_planes(u, step, None, 2 if abstain else 1, grid)


def encode_levels(u: UpdateVector, step: int, quantiser: Quantiser) -> Encoded:
    if u.dtype != torch.float32:
        return torch_ops.encode_levels(u, step, quantiser)
    check_quantiser(quantiser)
    check_update(u)
    name, bits, scale, log2_base, _ = quantiser
    grid = {"GRID": name, "SCALE": scale, "LOG2_BASE": log2_base, "SHIFT": quantiser.shift}
    return _encode_planes(u, step, _units(u, scale), bits, grid)


def encode_values(u: UpdateVector, dtype: torch.dtype) -> Encoded:
    if u.dtype != torch.float32 or dtype == torch.float64:
        return torch_ops.encode_values(u, dtype)
    check_update(u)
    out = torch.empty(u.layout.padded_numel, dtype=dtype, device=u.device)
    num_not_finite = _counter(u.device)
    for number, start, stop in _stretches(u):
        _launch(
            _kernels().encode_numbers,
            u.device,
            _programs(stop - start, ELEMENTS),
            out=out,
            num_not_finite=num_not_finite,
            **_operands(u.parts[number]),
            **_next(u.parts[number]),
            start=start,
            stop=stop,
            length=u.layout.lengths[number],
            BLOCK=ELEMENTS,
        )
    return Encoded(out.view(torch.uint8).view(u.layout.blocks, BLOCK * dtype.itemsize), not num_not_finite.item())


def _encode_planes(u: UpdateVector, step: int, units: Tensor | None, planes: int, grid: dict[str, Any]) -> Encoded:
    words = torch.zeros(u.layout.blocks, 2 * planes, dtype=torch.int32, device=u.device)
    num_not_finite = _counter(u.device)
    for number, start, stop in _stretches(u):
        _launch(
            _kernels().encode_planes,
            u.device,
            _word_programs(start, stop, TILE_WORDS),
            words=words,
            num_not_finite=num_not_finite,
            **_operands(u.parts[number]),
            **_next(u.parts[number]),
            units=units,
            number=number,
            step=step % 2,
            start=start,
            stop=stop,
            length=u.layout.lengths[number],
            **grid,
            PLANES=planes,
            WORDS=TILE_WORDS,
        )
    return Encoded(words.view(torch.uint8), not num_not_finite.item())


def _units(u: UpdateVector, scale: str) -> Tensor:
    """The scale of every part, float32. Where u is not finite it is junk."""
    units = torch.zeros(len(u.parts), dtype=torch.float32, device=u.device)
    for number, (part, length) in enumerate(zip(u.parts, u.layout.lengths, strict=True)):
        if part.m is None or not length:
            continue
        operands, result = {**_operands(part), "length": length}, {"units": units, "number": number}
        if scale == "l1":
            _mean_magnitude(operands, result)
        else:
            num_programs = _programs(length, ELEMENTS)
            _launch(_kernels().largest_magnitude, u.device, num_programs, **operands, **result, BLOCK=ELEMENTS)
    return units


def _mean_magnitude(operands: dict[str, Any], result: dict[str, Any]) -> None:
    """In the order of :func:`lioncub.kernels.torch_ops.abs_sum`: rows, then chunks, then all."""
    device, length = result["units"].device, operands["length"]
    num_chunks = _programs(length, SUM_CHUNK)
    row_sums = torch.empty(num_chunks * SUM_CHUNK // ROWS_ADDED, dtype=torch.float64, device=device)
    chunk_sums = torch.empty(num_chunks, dtype=torch.float64, device=device)
    num_programs = len(row_sums) // ROW_SUMS
    _launch(_kernels().row_sums, device, num_programs, sums=row_sums, **operands, BLOCK=ROW_SUMS)
    _launch(_kernels().chunk_sums, device, num_chunks, sums=chunk_sums, row_sums=row_sums, num_warps=1)
    totals = {"sums": chunk_sums, "num_chunks": num_chunks, "length": length}
    _launch(_kernels().mean_magnitude, device, 1, **totals, **result, UNROLLED=UNROLLED, num_warps=1)


def _stretches(u: UpdateVector) -> Iterator[tuple[int, int, int]]:
    """Every part's number, start and stop; the padding belongs to the last one."""
    stops = (*u.layout.starts, u.layout.padded_numel)[1:]
    for number, (start, stop) in enumerate(zip(u.layout.starts, stops, strict=True)):
        if start < stop:
            yield number, start, stop


def _operands(part: Part) -> dict[str, Any]:
    m, g = (None if tensor is None else _flat(tensor) for tensor in (part.m, part.g))
    return {"m": m, "g": g, "beta": part.beta, "gain": part.gain}


def _next(part: Part) -> dict[str, Any]:
    """The momentum after this step, where the part asks for it: written by the pass that reads m and g."""
    asked = part.m is not None and part.g is not None
    next_m = part.next_m.view(-1) if asked and part.next_m is not None else None
    return {"next_m": next_m, "next_beta": part.next_beta, "next_gain": part.next_gain}


# ---- combining -----------------------------------------------------------------------------------------------------


def majority(payloads: Tensor, ballot: Ballot, tally: Tally) -> Tensor:
    check_tally(tally, ballot)
    check_ballot(payloads, ballot, 1 + tally.index_bits)
    shape, magnitude_bits = _shape(tally.magnitudes)

    def launch(span: Span, operands: dict[str, Any]) -> None:
        _launch(
            _kernels().add_up_signed,
            payloads.device,
            _word_programs(span.start, span.stop, WORDS),
            **operands,
            caster=span.casting_voter(ballot.step),
            MAGNITUDES=tuple(tally.magnitudes),
            SHAPE=shape,
            INDEX_BITS=tally.index_bits,
            MAGNITUDE_BITS=magnitude_bits,
            SUM_BITS=tally.sum_bits(len(span.voters)),
            CASTING=tally.casting,
            DOWN=2 if tally.ternary else 1,
            WORDS=WORDS,
        )

    return _by_spans(payloads, ballot, launch, 2 if tally.ternary else 1)


def count_ones(payloads: Tensor, ballot: Ballot) -> Tensor:
    check_ballot(payloads, ballot, 1)
    planes = len(payloads).bit_length()

    def launch(span: Span, operands: dict[str, Any]) -> None:
        num_programs = _word_programs(span.start, span.stop, WORDS)
        _launch(_kernels().add_up_ones, payloads.device, num_programs, **operands, PLANES=planes, WORDS=WORDS)

    return _by_spans(payloads, ballot, launch, planes)


def _by_spans(payloads: Tensor, ballot: Ballot, launch: Callable[[Span, dict[str, Any]], None], planes: int) -> Tensor:
    """Call ``launch(span, operands)`` for every span; elements without a voter stay zero."""
    source = _as_numbers(payloads, torch.int32)
    out = torch.zeros(payloads.shape[1], 2 * planes, dtype=torch.int32, device=payloads.device)
    for span in ballot.spans:
        if span.voters and span.start < span.stop:
            operands = {
                "payloads": source,
                "out": out,
                "voters": _on_device(span.voters, payloads.device),
                "num_voters": len(span.voters),
                "worker_stride": source.stride(0),
                "start": span.start,
                "stop": span.stop,
            }
            launch(span, operands)
    return out.view(torch.uint8)


def _shape(magnitudes: Sequence[int]) -> tuple[str, int]:
    """The rule by which the kernel computes magnitudes from indices, and the number of their bits."""
    bits = max(magnitudes).bit_length()
    if tuple(magnitudes) == tuple(range(len(magnitudes))):
        return "linear", bits
    if tuple(magnitudes) == tuple(range(1, 2 * len(magnitudes), 2)):
        return "odd", bits
    return "table", bits


@lru_cache(maxsize=1024)
def _on_device(voters: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor(voters, dtype=torch.int32, device=device)


# ---- moving --------------------------------------------------------------------------------------------------------


def apply_(moves: Sequence[Move], direction: Direction) -> None:
    check_moves(moves, direction)
    dtype = {"sign-of": direction.dtype, "values": torch.float32}.get(direction.kind, torch.int32)
    toward = {
        "direction": _as_numbers(direction.payload, dtype),
        "KIND": direction.kind,
        "PLANES": direction.num_planes if dtype == torch.int32 else 0,
    }
    for move in moves:
        if _is_double(move.x, move.m):
            torch_ops.apply_([move], direction)
        elif move.x.numel():
            _move(move, toward)


def _move(move: Move, toward: dict[str, Any]) -> None:
    x = _flat(move.x)
    m, g = (None, None) if move.m is None or move.g is None else (_flat(move.m), _flat(move.g))
    _launch(
        _kernels().move,
        x.device,
        _programs(len(x), ELEMENTS),
        x=x,
        m=m,
        g=g,
        start=move.start,
        length=len(x),
        lr=move.lr,
        decay=move.decay,
        num_voters=move.num_voters,
        beta=move.beta,
        gain=move.gain,
        BLOCK=ELEMENTS,
        **toward,
        **_noise(x, move.noise),
    )
    _write_back(move.x, x)
    if move.m is not None and m is not None:
        _write_back(move.m, m)


def lion_(strides: Sequence[Stride]) -> int:
    check_strides(strides)
    doubles = [stride for stride in strides if _is_double(stride.x, stride.m)]
    singles = [stride for stride in strides if not _is_double(stride.x, stride.m) and stride.x.numel()]
    skipped = torch_ops.lion_(doubles)
    if singles:
        num_skipped = _counter(singles[0].x.device)
        for stride in singles:
            _lion(stride, num_skipped)
        skipped += int(num_skipped)
    return skipped


def _lion(stride: Stride, num_skipped: Tensor) -> None:
    x, m = _flat(stride.x), _flat(stride.m)
    _launch(
        _kernels().lion,
        x.device,
        _programs(len(x), ELEMENTS),
        x=x,
        m=m,
        g=_flat(stride.g),
        num_skipped=num_skipped,
        length=len(x),
        lr=stride.lr,
        decay=stride.decay,
        beta1=stride.beta1,
        gain1=stride.gain1,
        beta2=stride.beta2,
        gain2=stride.gain2,
        BLOCK=ELEMENTS,
        **_noise(x, stride.noise),
    )
    _write_back(stride.x, x)
    _write_back(stride.m, m)


def _is_double(x: Tensor, m: Tensor | None) -> bool:
    return x.dtype == torch.float64 or (m is not None and m.dtype == torch.float64)


def _noise(x: Tensor, noise: Noise | None) -> dict[str, Any]:
    """The key's words as int32, so that one compiled kernel takes them all."""
    low, high = (word - (word >> 31 << 32) for word in noise or (0, 0))
    return {"noise_low": low, "noise_high": high, "STOCHASTIC": noise is not None and x.dtype == torch.bfloat16}


def _flat(tensor: Tensor) -> Tensor:
    """Its elements one after the other in memory, as the kernels read them: a copy where they are not."""
    return tensor.resolve_neg().contiguous().view(-1)


def _write_back(tensor: Tensor, flat: Tensor) -> None:
    """Copy ``flat`` back where it is a copy."""
    if tensor.data_ptr() != flat.data_ptr():
        tensor.copy_(flat.view(tensor.shape))


# ---- looking back --------------------------------------------------------------------------------------------------


def count_matches(payload: Tensor, direction: Direction, cuts: Sequence[Cut], *, own_zeros: bool) -> int:
    check_cuts(payload, direction, cuts)
    payload = payload.reshape(-1, payload.shape[-1])
    mine, outcome = _as_numbers(payload, torch.int32), _as_numbers(direction.payload, torch.int32)
    num_same = _counter(payload.device)
    for start, stop, num_voters in cuts:
        if start < stop:
            _launch(
                _kernels().matches,
                payload.device,
                _word_programs(start, stop, WORDS),
                payload=mine,
                outcome=outcome,
                num_same=num_same,
                num_voters=num_voters,
                start=start,
                stop=stop,
                COUNTS=direction.kind == "counts",
                OWN_ZEROS=own_zeros,
                UP=payload.shape[1] // 8,
                DOWN=direction.num_planes,
                WORDS=WORDS,
            )
    return int(num_same)


# ---- launching -----------------------------------------------------------------------------------------------------


def _kernels() -> Any:
    from lioncub.kernels import triton_kernels

    return triton_kernels


def _launch(kernel: Any, device: torch.device, num_programs: int, **arguments: Any) -> None:
    """Without fused multiply-add: it rounds once where every other body rounds twice."""
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        kernel[(num_programs,)](**arguments, enable_fp_fusion=False)


def _programs(length: int, size: int) -> int:
    return -(-length // size)


def _word_programs(start: int, stop: int, num_words: int) -> int:
    return _programs(_programs(stop, WORD) - start // WORD, num_words)


def _counter(device: torch.device) -> Tensor:
    return torch.zeros((), dtype=torch.int64, device=device)


def _as_numbers(payload: Tensor, dtype: torch.dtype) -> Tensor:
    """``[…, blocks, bytes]`` as ``[…, numbers]``: a copy only where memory order or alignment asks for one."""
    flat = payload.flatten(-2)
    if not flat.numel():
        return flat.to(dtype)
    offsets = (flat.data_ptr(), *flat.stride()[:-1])
    aligned = flat.stride(-1) == 1 and all(offset % dtype.itemsize == 0 for offset in offsets)
    return (flat if aligned else flat.clone(memory_format=torch.contiguous_format)).view(dtype)
