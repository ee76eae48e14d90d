"""Operands for the kernels: awkward sizes, numbers and memory orders, drawn by hypothesis."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from lioncub.kernels import Cut, Direction, Move, Noise, Part, Quantiser, Stride, Tally, UpdateVector
from lioncub.kernels.layout import Ballot, Layout, Span

SIZES = (0, 1, 7, 8, 63, 64, 65, 127, 300, 1023, 1024, 1025, 5000)
SMALL = (0, 1, 7, 8, 63, 64, 65, 127, 300)
"""For a body that is interpreted."""
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
def updates(draw: Callable[..., object], among: Sequence[int] = SIZES, finite: bool = True) -> UpdateVector:
    """A bucket of one to four tensors, some of them absent, some given as they are."""
    sizes = draw(st.lists(st.sampled_from(among), min_size=1, max_size=4))
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


# ---- what no body may accept ---------------------------------------------------------------------------------------


def refused_directions() -> dict[str, Direction]:
    """For ten blocks of parameters on the CPU."""
    return {
        "too short": Direction("signs", payload(9, 1, 0)),
        "no planes": Direction("signs", payload(10, 0, 0)),
        "three planes of signs": Direction("signs", payload(10, 3, 0)),
        "half a plane": Direction("counts", payload(10, 1, 0)[:, :4]),
        "more planes than float32 can count": Direction("counts", payload(10, 25, 0)),
        "values of two bytes": Direction("values", payload(10, 16, 0)),
        "signs for values": Direction("values", payload(10, 1, 0)),
        "bfloat16 for float32": Direction("sign-of", payload(10, 16, 0)),
        "the signs of integers": Direction("sign-of", payload(10, 32, 0), torch.int32),
        "not bytes": Direction("signs", payload(10, 1, 0).long()),
        "elsewhere": Direction("signs", payload(10, 1, 0).to("meta")),
        "flat": Direction("signs", payload(10, 1, 0).view(-1)),
        "of no kind": Direction("sings", payload(10, 1, 0)),  # type: ignore[arg-type]
    }


class MovesAlong(NamedTuple):
    """Moves that can be made again as they were, and a direction for them."""

    made: Callable[[], list[Move]]
    direction: Direction


@st.composite
def moves_along(draw: st.DrawFn, lengths: Sequence[int]) -> MovesAlong:
    sizes = draw(st.lists(st.sampled_from(lengths), min_size=1, max_size=4))
    dtypes = draw(st.tuples(st.sampled_from(STORED), st.sampled_from(MOMENTA), st.sampled_from(STORED)))
    order, noise, seed = draw(st.sampled_from(ORDERS)), draw(st.booleans()), draw(st.integers(0, 2**31))
    toward = direction(draw(st.sampled_from(DIRECTIONS)), (sum(sizes) + 7) // 64 + 1, seed)
    return MovesAlong(partial(moves, sizes, dtypes, order, seed, noise=noise), toward)


def refused_calls() -> dict[str, Callable[[Any], object]]:
    """Each takes a body."""
    x, mine, votes = torch.zeros(640), payload(10, 1, 0), payloads(3, 4, 1, 0)
    signs, vote = Direction("signs", mine), Tally((1,), casting=True, ternary=False)

    def moved(toward: Direction, m: Tensor | None) -> Callable[[Any], object]:
        return lambda body: body.apply_([Move(x, 0, 0.1, 1.0, 1, m, x)], toward)

    def matched(toward: Direction) -> Callable[[Any], object]:
        return lambda body: body.count_matches(mine, toward, [Cut(0, 640, 1)], own_zeros=False)

    def lion(m: Tensor, g: Tensor) -> Callable[[Any], object]:
        return lambda body: body.lion_([Stride(x, m, g, 0.1, 1.0, 0.9, 0.1, 0.99, 0.01)])

    def encoded(lengths: tuple[int, ...], *parts: Part) -> Callable[[Any], object]:
        u = UpdateVector(parts, Layout(lengths, 1), torch.float32, torch.device("cpu"))
        return lambda body: body.encode_signs(u, 0, abstain=False)

    def quantised(quantiser: Quantiser) -> Callable[[Any], object]:
        u = UpdateVector.of(x, Layout((640,), 1))
        return lambda body: body.encode_levels(u, 0, quantiser)

    def weighed(tally: Tally) -> Callable[[Any], object]:
        planes = payloads(3, 4, 1 + (max(len(tally.magnitudes), 1) - 1).bit_length(), 0)
        return lambda body: body.majority(planes, Ballot(0, (Span(0, 256, (0, 1, 2)),)), tally)

    calls = {f"a direction: {name}": moved(toward, None) for name, toward in refused_directions().items()}
    calls |= {f"an outcome: {name}": matched(toward) for name, toward in refused_directions().items()}
    for name, operand in {"short": torch.zeros(3), "elsewhere": torch.zeros(640, device="meta")}.items():
        calls |= {
            f"a momentum of Lion: {name}": lion(operand, x),
            f"a gradient of Lion: {name}": lion(x.clone(), operand),
            f"a momentum of a move: {name}": moved(signs, operand),
            f"a gradient of a part: {name}": encoded((640,), Part(x, operand, 0.9, 0.1)),
        }
    return calls | {
        **{
            f"levels: {quantiser}": quantised(Quantiser(*quantiser))
            for quantiser in (
                ("midrise", 1, "l1"),
                ("midrise", 9, "l1"),
                ("log", 4, "l1", 4),
                ("log", 4, "l1", 1, 8),
                ("log", 4, "l1", 1, -1),
                ("log", 4, "linf", 1, 1),
                ("midrise", 4, "l1", 1, 1),
                ("loud", 4, "l1"),
                ("midrise", 4, "l3"),
            )
        },
        **{
            f"magnitudes: {magnitudes}": weighed(Tally(magnitudes, casting=False, ternary=True))
            for magnitudes in ((), (0,), (-1, 2), (2, 1), (1, 1), (1, 2, 3), (1 << 50, 1), (1, 1 << 50), (7, 1, 0, 2))
        },
        "nobody's payloads": lambda body: body.majority(votes[:0], Ballot(0, (Span(0, 256, ()),)), vote),
        "nobody's ones": lambda body: body.count_ones(votes[:0], Ballot(0, (Span(0, 256, ()),))),
        "a voter who counts too often": lambda body: body.count_ones(votes, Ballot(0, (Span(0, 256, (0,) * 4),))),
        "a start that is no whole number": lambda body: body.apply_([Move(x, 0.5, 0.1, 1.0, 1)], signs),  # type: ignore[arg-type]
        "fewer parts than lengths": encoded((640, 1), Part(x)),
        "before the direction": lambda body: body.apply_([Move(x, -1, 0.1, 1.0, 1)], signs),
        "an unknown voter": lambda body: body.majority(votes, Ballot(0, (Span(0, 256, (0, 1, 9)),)), vote),
        "a negative voter": lambda body: body.count_ones(votes, Ballot(0, (Span(0, 256, (-1,)),))),
        "a span behind the end": lambda body: body.majority(votes, Ballot(0, (Span(0, 257, (0,)),)), vote),
        "payloads that are not bytes": lambda body: body.count_ones(votes.long(), Ballot(0, (Span(0, 256, (0,)),))),
        "a cut behind the end": lambda body: body.count_matches(mine, signs, [Cut(0, 641, 1)], own_zeros=False),
        "values against planes": matched(direction("values", 10, 0)),
    }


REFUSED = refused_calls()
