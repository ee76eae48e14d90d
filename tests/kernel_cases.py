"""Operands for the kernels: awkward sizes, numbers and memory orders, drawn by hypothesis."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from hypothesis import strategies as st
from torch import Tensor

from lioncub.kernels import Direction, Move, Noise, Part, Stride, UpdateVector
from lioncub.layout import Ballot, Layout, Span

SIZES = (0, 1, 7, 8, 63, 64, 65, 127, 300, 1023, 1024, 1025, 5000)
STORED = (torch.float32, torch.bfloat16, torch.float16)
MOMENTA = (torch.float32, torch.bfloat16)
AWKWARD = (0.0, -0.0, 1e-45, -1e-40, 6e-8, 65504.0, -1e30, 3e38)
NOT_FINITE = (float("nan"), float("inf"), float("-inf"))
BETAS = (0.9, 0.99)

draws = st.composite


def numbers(numel: int, dtype: torch.dtype, seed: int, *, finite: bool = True) -> Tensor:
    """Heavy-tailed numbers with zeros of both signs, subnormals and huge ones among them."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(numel, generator=generator) ** 3 * 1e-3
    odd = torch.tensor(AWKWARD + (() if finite else NOT_FINITE))
    where = torch.rand(numel, generator=generator) < 0.3
    values[where] = odd[torch.randint(len(odd), (int(where.sum()),), generator=generator)]
    if finite:  # what is too large for half precision would become infinite
        values = values.clamp(-torch.finfo(dtype).max / 4, torch.finfo(dtype).max / 4)
    return values.to(dtype)


def in_some_order(values: Tensor, order: str) -> Tensor:
    """The same numbers, contiguous, not aligned, or strided."""
    if order == "unaligned":
        return torch.cat([values.new_zeros(1), values])[1:]
    if order == "strided":
        return torch.stack([values, values], dim=1)[:, 0]
    return values.clone()


ORDERS = ("contiguous", "unaligned", "strided")


@draws
def updates(draw: Callable[..., object], finite: bool = True) -> UpdateVector:
    """A bucket of one to four tensors, some of them absent, some given as they are."""
    sizes = draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=4))
    seed = draw(st.integers(0, 2**31))
    assert isinstance(sizes, list)
    assert isinstance(seed, int)
    parts = []
    for number, numel in enumerate(sizes):
        m_dtype, g_dtype = draw(st.sampled_from(MOMENTA)), draw(st.sampled_from(STORED))
        order = draw(st.sampled_from(ORDERS))
        assert isinstance(m_dtype, torch.dtype)
        assert isinstance(g_dtype, torch.dtype)
        m = in_some_order(numbers(numel, m_dtype, seed + number), str(order))
        g = in_some_order(numbers(numel, g_dtype, seed - number - 1, finite=finite), str(order))
        kind = draw(st.sampled_from(("blend", "blend", "blend", "absent", "given")))
        parts.append({"blend": Part(m, g, 0.9, 1 - 0.9), "absent": Part(), "given": Part(m)}[str(kind)])
    layout = Layout(tuple(sizes), int(draw(st.sampled_from((1, 2, 3)))))  # type: ignore[call-overload]
    return UpdateVector(parts, layout, torch.float32, torch.device("cpu"))


def payload(blocks: int, planes: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (blocks, 8 * planes), dtype=torch.uint8, generator=generator)


def payloads(workers: int, blocks: int, planes: int, seed: int, *, apart: int = 0) -> Tensor:
    """Everybody's payload; rows ``apart`` bytes apart, as they lie behind the headers of an exchange."""
    flat = payload(workers, 1 + blocks * planes + apart // 8, seed)
    return flat[:, apart : apart + 8 * blocks * planes].view(workers, blocks, 8 * planes)


def ballot(blocks: int, workers: int, step: int, seed: int) -> Ballot:
    """Two or three spans that end anywhere, with voters of their own; some have none."""
    generator = torch.Generator().manual_seed(seed)
    cuts = sorted({0, blocks * 64, *torch.randint(blocks * 64 + 1, (2,), generator=generator).tolist()})
    spans = []
    for start, stop in itertools.pairwise(cuts):
        chosen = torch.rand(workers, generator=generator) < 0.8
        spans.append(Span(start, stop, tuple(torch.nonzero(chosen).view(-1).tolist())))
    return Ballot(step, tuple(spans))


def moves(
    sizes: Sequence[int], dtypes: tuple[torch.dtype, torch.dtype, torch.dtype], order: str, seed: int, *, noise: bool
) -> list[Move]:
    """Tensors to move, the last without a momentum."""
    x_dtype, m_dtype, g_dtype = dtypes
    key = Noise(seed & 0xFFFFFFFF, 12345) if noise else None
    made, start = [], seed % 7
    for number, numel in enumerate(sizes):
        x = in_some_order(numbers(numel, x_dtype, seed + number), order)
        m = in_some_order(numbers(numel, m_dtype, seed + 31 * number), order)
        g = in_some_order(numbers(numel, g_dtype, seed + 57 * number), order)
        move = Move(x, start, 3e-3, 1 - 3e-4, 3, m, g, 0.99, 1 - 0.99, key)
        made.append(move if number + 1 < len(sizes) else Move(x, start, 3e-3, 0.5, 3, noise=key))
        start += numel
    return made


def strides(moves: Sequence[Move]) -> list[Stride]:
    """Plain Lion on the same tensors."""
    return [
        Stride(move.x, move.m, move.g, move.lr, move.decay, 0.9, 1 - 0.9, 0.99, 1 - 0.99, move.noise)
        for move in moves
        if move.m is not None and move.g is not None
    ]


def direction(kind: str, blocks: int, seed: int) -> Direction:
    if kind == "signs-of-bfloat16":
        return Direction(
            "sign-of", numbers(blocks * 64, torch.bfloat16, seed).view(torch.uint8).view(blocks, -1), torch.bfloat16
        )
    if kind in ("sign-of", "values"):
        values = numbers(blocks * 64, torch.float32, seed).clamp(-4, 4)
        return Direction(kind, values.view(torch.uint8).view(blocks, -1))  # type: ignore[arg-type]
    if kind == "counts":
        return Direction("counts", payload(blocks, 2, seed))
    return Direction("signs", payload(blocks, 2 if kind == "ternary" else 1, seed))


DIRECTIONS = ("signs", "ternary", "counts", "sign-of", "signs-of-bfloat16", "values")


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal bit for bit, -0.0 and 0.0 apart. In float32 any NaN equals any NaN: arithmetic is free to pick its bits."""
    if a.dtype != torch.float32:
        return torch.equal(a.contiguous().view(torch.int16), b.contiguous().view(torch.int16))
    nan = torch.isnan(a)
    if not torch.equal(nan, torch.isnan(b)):
        return False
    return torch.equal(a.contiguous().view(torch.int32)[~nan], b.contiguous().view(torch.int32)[~nan])
