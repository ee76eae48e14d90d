"""The kernels in C++ for CPU tensors, with as many threads as torch uses.

One call takes many tensors. Plain ones (contiguous, on the CPU, of the three formats) are read in C++; for all others
this module makes a table of addresses. It owns what the C++ cannot check: that payloads and those other tensors fit,
that memory is contiguous (else a copy is staged), that tensors outlive the call.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from lioncub.kernels import torch_ops
from lioncub.kernels.buffers import pool
from lioncub.kernels.checks import (
    check_ballot,
    check_cuts,
    check_direction,
    check_messages,
    check_moves,
    check_quantiser,
    check_strides,
    check_tally,
    check_update,
)
from lioncub.kernels.layout import BLOCK, Ballot
from lioncub.kernels.operands import Cut, Direction, Encoded, Move, Noise, Part, Quantiser, Stride, Tally, UpdateVector
from lioncub.kernels.torch_ops import SAMPLED_COLUMNS, SAMPLED_ROWS

if find_spec("lioncub.kernels._native") is None:
    _problem = "the C++ kernels were not built when lioncub was installed"
else:
    try:
        from lioncub.kernels import _native
    except ImportError as problem:
        _problem = f"the C++ kernels do not load: {problem}"
    else:
        _problem = ""
        _has_crc32 = _native.has_crc32()
        if hasattr(Tensor, "__dlpack_c_exchange_api__"):  # torch 2.10 and later
            _native.learn(Tensor.__dlpack_c_exchange_api__, Tensor, torch.nn.Parameter, Tensor.is_neg)

TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
GRIDS = {"midrise": 0, "log": 1, "midtread": 2}
KINDS = {"signs": 0, "counts": 1, "sign-of": 2, "values": 3}
CPU = torch.device("cpu")
PLAIN = (Tensor, torch.nn.Parameter)
UNIT, LINEAR, ODD, TABLE = range(4)
MAX_TABLE = 16


def why_not() -> str:
    """Why this body cannot be used; "" if it can."""
    return _problem


def describe() -> dict[str, str]:
    """How the extension was built, and which instruction sets of it this processor runs."""
    if _problem:
        return {}
    usable = ", ".join(_native.instruction_sets())
    walk = "in lanes, asking ahead" if _native.in_lanes() else "straight"
    return {"instruction set": _native.in_use(), "usable": usable, "memory walk": walk, "compiler": _native.compiler}


@contextmanager
def instruction_set(name: str) -> Iterator[None]:
    """Only this instruction set inside the block: for tests and benchmarks."""
    before = _native.in_use()
    _native.use(name)
    try:
        yield
    finally:
        _native.use(before)


@contextmanager
def pace(*, lanes: bool) -> Iterator[None]:
    """Inside the block memory is read in lanes, or front to back, on any processor: for tests and benchmarks."""
    before = _native.in_lanes()
    _native.set_pace(lanes)
    try:
        yield
    finally:
        _native.set_pace(before)


def read_ceiling(tensor: Tensor) -> int:
    """The sum of a contiguous tensor: the ceiling of the speed of kernels that read."""
    return _native.read_words(tensor.data_ptr(), tensor.numel() * tensor.element_size() // 8, torch.get_num_threads())


# ---- encoding ------------------------------------------------------------------------------------------------------


def encode_signs(u: UpdateVector, step: int, *, abstain: bool) -> Encoded:
    if u.dtype != torch.float32 or (operands := _operands(u)) is None:
        return torch_ops.encode_signs(u, step, abstain=abstain)
    payload = _empty(u, 2 if abstain else 1)
    threads = torch.get_num_threads()
    finite = _native.encode_signs(operands.update, step, abstain, u.layout.blocks, payload.data_ptr(), threads)
    return Encoded(payload, finite)


def encode_levels(u: UpdateVector, step: int, quantiser: Quantiser) -> Encoded:
    check_quantiser(quantiser)
    grid, bits, scale, log2_base, _ = quantiser
    if u.dtype != torch.float32 or (operands := _operands(u)) is None:
        return torch_ops.encode_levels(u, step, quantiser)
    payload = _empty(u, bits)
    levels = 1 << (bits - 1)
    half = 0.5 if scale == "l1" else 1.0
    finite = _native.encode_levels(
        operands.update,
        step,
        GRIDS[grid],
        bits,
        scale == "l1",
        (levels - 1) * half if grid == "midtread" else levels * half,
        log2_base,
        quantiser.shift,
        u.layout.blocks,
        payload.data_ptr(),
        torch.get_num_threads(),
    )
    return Encoded(payload, finite)


def encode_values(u: UpdateVector, dtype: torch.dtype) -> Encoded:
    wanted = u.dtype == torch.float32 and dtype in (torch.float32, torch.bfloat16)
    if not wanted or (operands := _operands(u)) is None:
        return torch_ops.encode_values(u, dtype)
    values = torch.empty(u.layout.padded_numel, dtype=dtype, device=u.device)
    threads = torch.get_num_threads()
    finite = _native.encode_values(operands.update, TYPES[dtype], u.layout.blocks, values.data_ptr(), threads)
    return Encoded(values.view(torch.uint8).view(u.layout.blocks, BLOCK * dtype.itemsize), finite)


class _Operands(NamedTuple):
    """An update vector as the C++ takes it, and the copies that must outlive the call."""

    update: _native.Update
    copies: Sequence[Tensor] = ()


def _operands(u: UpdateVector) -> _Operands | None:
    """None where only torch can take them."""
    update = _native.read_update(u.parts, u.layout.starts, u.layout.lengths)
    if update is not None:
        return _Operands(update)
    check_update(u, CPU)
    try:
        table = _Table.of(u)
    except _ForeignError:
        return None
    return _Operands(_native.table_update(table.ints, table.floats), table.kept)


class _Table:
    """A call's integers, numbers, and the tensors that must outlive it."""

    def __init__(self, *, may_copy: bool = True) -> None:
        self.may_copy = may_copy
        self.ints: list[int] = []
        self.floats: list[float] = []
        self.kept: list[Tensor] = []
        self.staged: list[tuple[Tensor, Tensor]] = []

    @classmethod
    def of(cls, u: UpdateVector) -> _Table:
        table = cls()
        for part, start, length in zip(u.parts, u.layout.starts, u.layout.lengths, strict=True):
            table._add(part, start, length)
        return table

    def _add(self, part: Part, start: int, length: int) -> None:
        m, g, beta, gain, next_m, next_beta, next_gain = part
        m_at = m_type = g_at = g_type = next_at = 0
        if m is not None:
            m_at, m_type = self.readable(m)
            if g is not None:
                g_at, g_type = self.readable(g)
                if next_m is not None:
                    next_at, _ = self.momentum(next_m)
        self.ints += (start, length, m_at, g_at, m_type | g_type << 2, next_at)
        self.floats += (beta, gain, next_beta, next_gain)

    def readable(self, tensor: Tensor) -> tuple[int, int]:
        """The address and type of a tensor's elements in logical order; of a copy where they are not contiguous."""
        if type(tensor) not in PLAIN or tensor.is_neg():
            raise _ForeignError
        kind = TYPES.get(tensor.dtype)
        if kind is None or not tensor.is_contiguous():
            self._before_a_copy()
            tensor = tensor.to(torch.float32 if kind is None else tensor.dtype).contiguous()
            kind = TYPES[tensor.dtype]
            self.kept.append(tensor)
        return tensor.data_ptr() or _nowhere(tensor), kind

    def writable(self, tensor: Tensor) -> tuple[int, int]:
        """The same for a tensor to be written; a copy is written back by :meth:`write_back`."""
        kind = TYPES.get(tensor.dtype)
        if type(tensor) not in PLAIN or tensor.is_neg() or kind is None:
            raise _ForeignError
        if not tensor.is_contiguous():
            self._before_a_copy()
            copy = tensor.contiguous()
            self.staged.append((tensor, copy))
            tensor = copy
        return tensor.data_ptr() or _nowhere(tensor), kind

    def momentum(self, tensor: Tensor) -> tuple[int, int]:
        """The same for a momentum to be advanced: there is no C++ for any but these two formats."""
        if tensor.dtype not in (torch.float32, torch.bfloat16):
            raise _ForeignError
        return self.writable(tensor)

    def _before_a_copy(self) -> None:
        if not self.may_copy:
            raise _StridedError

    def write_back(self) -> None:
        for tensor, copy in self.staged:
            tensor.copy_(copy)


class _StridedError(Exception):
    """A copy would be needed."""


class _ForeignError(Exception):
    """An operand for torch only: of another format, or with memory that differs from its values (a subclass, a lazy
    negation or zero)."""


def _nowhere(tensor: Tensor) -> int:
    """Only what is empty may have no memory: zero tensors and fake tensors have none either."""
    if tensor.numel():
        raise _ForeignError
    return 0


def _empty(u: UpdateVector, num_planes: int) -> Tensor:
    return pool.empty(u.layout.blocks, num_planes * BLOCK // 8)


# ---- combining -----------------------------------------------------------------------------------------------------


def majority(payloads: Tensor, ballot: Ballot, tally: Tally) -> Tensor:
    check_tally(tally, ballot)
    weights = _weights(tally.magnitudes)
    if weights is None:
        return torch_ops.majority(payloads, ballot, tally)
    check_ballot(payloads, ballot, 1 + tally.index_bits, CPU)
    rows = _rows(payloads)
    out = _outcome(ballot, rows.shape[1], 2 if tally.ternary else 1)
    for span in ballot.spans:
        casting = span.casting_voter(ballot.step) if tally.casting and span.voters else -1
        _native.majority(
            rows.data_ptr(),
            rows.stride(0),
            list(span.voters),
            casting,
            weights,
            tally.sum_bits(len(span.voters)),
            tally.ternary,
            list(tally.magnitudes),
            span.start,
            span.stop,
            out.data_ptr(),
            torch.get_num_threads(),
        )
    return out


def count_ones(payloads: Tensor, ballot: Ballot) -> Tensor:
    check_ballot(payloads, ballot, 1, CPU)
    rows = _rows(payloads)
    planes = len(payloads).bit_length()
    out = _outcome(ballot, rows.shape[1], planes)
    threads = torch.get_num_threads()
    for span in ballot.spans:
        voters = list(span.voters)
        _native.count_ones(
            rows.data_ptr(), rows.stride(0), voters, planes, span.start, span.stop, out.data_ptr(), threads
        )
    return out


def _outcome(ballot: Ballot, blocks: int, planes: int) -> Tensor:
    """Room for an outcome; zeros only where spans leave gaps, for they cost a pass over memory."""
    ends = [0, *(end for span in ballot.spans for end in (span.start, span.stop)), blocks * BLOCK]
    gapless = all(end == start for end, start in zip(ends[::2], ends[1::2], strict=True))
    return (torch.empty if gapless else torch.zeros)(blocks, 8 * planes, dtype=torch.uint8)


@cache
def _weights(magnitudes: tuple[int, ...]) -> int | None:
    """The rule by which C++ computes the magnitude of an index; None: there is none."""
    count = len(magnitudes)
    if magnitudes == (1,):
        return UNIT
    if magnitudes == tuple(range(count)):
        return LINEAR
    if magnitudes == tuple(range(1, 2 * count, 2)):
        return ODD
    return TABLE if count <= MAX_TABLE and math.log2(count).is_integer() else None


def _rows(payloads: Tensor) -> Tensor:
    """``[workers, blocks, bytes]`` with every row contiguous and words aligned; rows may be apart."""
    workers, blocks, width = payloads.shape
    apart, *inside = payloads.stride()
    whole = inside == [width, 1] or blocks == 0 or payloads[0].is_contiguous()
    aligned = payloads.data_ptr() % 8 == 0 and (workers == 1 or apart % 8 == 0)
    return payloads if whole and aligned else payloads.contiguous()


# ---- moving --------------------------------------------------------------------------------------------------------


def apply_(moves: Sequence[Move], direction: Direction) -> None:
    if direction.dtype not in TYPES:
        return torch_ops.apply_(moves, direction)
    check_direction(direction, CPU)
    payload = _aligned(direction.payload)
    plain = _native.read_moves(moves, len(payload) * BLOCK)
    if plain is not None:
        return _move(plain, direction, payload)
    check_moves(moves, direction, CPU)
    table, rest = _Table(may_copy=False), []
    for move in moves:
        try:
            _add_move(table, move)
        except (_StridedError, _ForeignError):
            rest.append(move)
    _move(_native.table_moves(table.ints, table.floats), direction, payload)
    for move in rest:  # one by one, so that there is one copy at a time
        _move_alone(move, direction, payload)
    return None


def _move(moves: _native.Moves, direction: Direction, payload: Tensor) -> None:
    kind, planes, dtype = KINDS[direction.kind], direction.num_planes, TYPES[direction.dtype]
    _native.apply(moves, kind, planes, dtype, payload.data_ptr(), torch.get_num_threads())


def _move_alone(move: Move, direction: Direction, payload: Tensor) -> None:
    table = _Table()
    try:
        _add_move(table, move)
    except _ForeignError:
        return torch_ops.apply_([move], direction)
    _move(_native.table_moves(table.ints, table.floats), direction, payload)
    return table.write_back()


def _add_move(table: _Table, move: Move) -> None:
    """Add all of the move, or nothing where the table cannot take it, which raises."""
    x, start, lr, decay, num_voters, m, g, beta, gain, noise = move
    x_at, x_type = table.writable(x)
    m_at = m_type = g_at = g_type = 0
    if m is not None and g is not None:
        m_at, m_type = table.momentum(m)
        g_at, g_type = table.readable(g)
    types = x_type | m_type << 2 | g_type << 4
    table.ints += (start, x.numel(), x_at, m_at, g_at, types, num_voters, *(noise or NO_NOISE))
    table.floats += (lr, decay, beta, gain)


def lion_(strides: Sequence[Stride]) -> int:
    plain = _native.read_strides(strides)
    if plain is not None:
        return _native.lion(plain, torch.get_num_threads())
    check_strides(strides, CPU)
    table, rest = _Table(may_copy=False), []
    for stride in strides:
        try:
            _add_stride(table, stride)
        except (_StridedError, _ForeignError):
            rest.append(stride)
    skipped = _native.lion(_native.table_strides(table.ints, table.floats), torch.get_num_threads())
    # One by one, so that there is one copy at a time.
    return skipped + sum(_lion_alone(stride.in_memory_order()) for stride in rest)


def _lion_alone(stride: Stride) -> int:
    table = _Table()
    try:
        _add_stride(table, stride)
    except _ForeignError:
        return torch_ops.lion_([stride])
    skipped = _native.lion(_native.table_strides(table.ints, table.floats), torch.get_num_threads())
    table.write_back()
    return skipped


def _add_stride(table: _Table, stride: Stride) -> None:
    """As :func:`_add_move`."""
    x, m, g, lr, decay, beta1, gain1, beta2, gain2, noise = stride
    x_at, x_type = table.writable(x)
    m_at, m_type = table.momentum(m)
    g_at, g_type = table.readable(g)
    types = x_type | m_type << 2 | g_type << 4
    table.ints += (x.numel(), x_at, m_at, g_at, types, *(noise or NO_NOISE))
    table.floats += (lr, decay, beta1, gain1, beta2, gain2)


NO_NOISE = Noise(-1, 0)


# ---- looking back --------------------------------------------------------------------------------------------------


def count_matches(payload: Tensor, direction: Direction, cuts: Sequence[Cut], *, own_zeros: bool) -> int:
    check_cuts(payload, direction, cuts, CPU)
    mine, theirs = _rows(payload if payload.dim() == 3 else payload.unsqueeze(0)), _aligned(direction.payload)
    shards, blocks, width = mine.shape
    return _native.count_matches(
        mine.data_ptr(),
        shards,
        mine.stride(0),
        blocks,
        width // 8,
        own_zeros,
        theirs.data_ptr(),
        direction.num_planes,
        direction.kind == "counts",
        [number for cut in cuts for number in cut],
        torch.get_num_threads(),
    )


def _aligned(payload: Tensor) -> Tensor:
    payload = payload.contiguous()
    return payload if payload.data_ptr() % 8 == 0 else payload.clone()


def fingerprint(tensor: Tensor, crc: int = 0, *, first: int = 0, last: int | None = None) -> int:
    last = tensor.numel() if last is None else last
    if not _has_crc32:
        return torch_ops.fingerprint(tensor, crc, first=first, last=last)
    found = _native.crc32_slice(tensor, first, last, crc)
    if found is not None:
        return found
    flat = tensor.detach().reshape(-1)[first:last].contiguous()
    return _native.crc32(flat.data_ptr(), flat.numel() * flat.element_size(), crc)


def checksums(rows: Tensor, num_bytes: int) -> list[int]:
    check_messages(rows, num_bytes)
    if not _has_crc32:
        return torch_ops.checksums(rows, num_bytes)
    return _native.crc32_rows(rows.data_ptr(), len(rows), rows.stride(0), num_bytes)


def sample(tensor: Tensor) -> int:
    found = _native.crc32_sample(tensor, SAMPLED_ROWS, SAMPLED_COLUMNS) if _has_crc32 else None
    return torch_ops.sample(tensor) if found is None else found
