"""Triton's kernels against torch_ops, bit for bit, on CPU tensors. ``tests/kernels/test_triton.py`` runs this file in a
process of its own with TRITON_INTERPRET=1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from triton.runtime.interpreter import InterpretedFunction

from lioncub import Levels, kernels
from lioncub.kernels import (
    Cut,
    Direction,
    Encoded,
    Move,
    Noise,
    Part,
    Quantiser,
    Stride,
    Tally,
    UpdateVector,
    torch_ops,
    triton_kernels,
    triton_ops,
)
from lioncub.kernels.layout import Ballot, Layout
from lioncub.kernels.rounding import hashed
from tests.support import kernel_cases as cases

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of NaN and overflow

# The fixture that is not reset between examples is _quick, which need not be.
few = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
CPU = torch.device("cpu")
F32, BF16, F16, F64 = torch.float32, torch.bfloat16, torch.float16, torch.float64
SIZES = (0, 1, 7, 8, 63, 64, 65, 1023, 5000)
BUCKETS = [(size,) for size in SIZES] + [(65, 0, 7, 1023, 8), (1, 1, 63, 64), (32, 0)]
WORKERS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 33)
NOISES = (None, Noise(0xDEADBEEF, 0x12345678), Noise(1, 0xFFFFFFFF))
ODD_NUMBERS = (0.0, -0.0, 1e-40, -1e-45, 6e-8, 1.17549435e-38, -3.3e38, 65519.0, 1.0, 1.00390625, 1.01171875)
"""Zeros, subnormals of three precisions, numbers near overflow, ties of bfloat16."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """At every call the interpreter patches the language for the function called. For ours, the launch has done it."""
    patching = InterpretedFunction.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        ours = self.fn.__module__ == triton_kernels.__name__
        return self.rewrite()(*args, **kwargs) if ours else patching(self, *args, **kwargs)

    monkeypatch.setattr(InterpretedFunction, "__call__", call)
    monkeypatch.setattr(triton_ops, "ROW_SUMS", 1024)


def numbers(seed: int, size: int, dtype: torch.dtype = F32, largest: float = 3.4e38) -> Tensor:
    """Random finite numbers of many magnitudes, a third of them odd ones."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(size, generator=generator) * torch.exp(4 * torch.randn(size, generator=generator))
    which = torch.randint(0, 3 * len(ODD_NUMBERS), (size,), generator=generator)
    for k, odd in enumerate(ODD_NUMBERS):
        values[which == k] = odd
    largest = min(largest, torch.finfo(dtype).max)
    return values.clamp(-largest, largest).to(dtype)


def random_bytes(seed: int, *shape: int) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def update_vector(
    lengths: Sequence[int],
    num_workers: int = 1,
    m_dtype: torch.dtype = F32,
    g_dtype: torch.dtype = F32,
    largest: float = 3.4e38,
) -> UpdateVector:
    """Every third part has no gradient, every fourth is absent."""
    parts = []
    for k, length in enumerate(lengths):
        m, g = numbers(k, length, m_dtype, largest), numbers(k + 99, length, g_dtype, largest)
        zero = numbers(k + 999, length) > 1
        m[zero], g[zero] = 0, 0
        parts.append([Part(m, g, 0.9, 0.1), Part(m, g, 0.95, -0.05), Part(m), Part()][k % 4])
    return UpdateVector(parts, Layout(tuple(lengths), num_workers), F32, CPU)


def assert_same(got: Tensor, expected: Tensor) -> None:
    """Equal bits, but a NaN is a NaN."""
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    if got.is_floating_point():
        assert torch.equal(got.isnan(), expected.isnan())
        got, expected = got.nan_to_num(0.0, torch.inf, -torch.inf), expected.nan_to_num(0.0, torch.inf, -torch.inf)
    assert torch.equal(
        *(values.flatten().clone(memory_format=torch.contiguous_format).view(torch.uint8) for values in (got, expected))
    )


def assert_same_encoding(got: Encoded, expected: Encoded) -> None:
    assert got.finite
    assert expected.finite
    assert_same(got.payload, expected.payload)


# ---- encoding ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", BUCKETS, ids=str)
def test_signs(lengths: tuple[int, ...]) -> None:
    for abstain in (False, True):
        u, step = update_vector(lengths, 1 + len(lengths)), len(lengths) + abstain
        expected = torch_ops.encode_signs(u, step, abstain=abstain)
        assert_same_encoding(triton_ops.encode_signs(u, step, abstain=abstain), expected)


@pytest.mark.parametrize(("m_dtype", "g_dtype"), list(product((F32, BF16), (F32, BF16, F16))))
def test_signs_of_every_precision(m_dtype: torch.dtype, g_dtype: torch.dtype) -> None:
    u = update_vector((65, 70), 1, m_dtype, g_dtype)
    assert_same_encoding(triton_ops.encode_signs(u, 1, abstain=True), torch_ops.encode_signs(u, 1, abstain=True))


def test_a_silent_update_vector() -> None:
    u = update_vector((65, 70), 3).silent()
    assert_same_encoding(triton_ops.encode_signs(u, 5, abstain=False), torch_ops.encode_signs(u, 5, abstain=False))
    levels = Quantiser("log", 4, "l1", 1)
    assert_same_encoding(triton_ops.encode_levels(u, 5, levels), torch_ops.encode_levels(u, 5, levels))


LEVELS = [
    *(
        Quantiser(grid, bits, scale)
        for grid in ("midrise", "midtread")
        for bits in (2, 5, 8)
        for scale in ("l1", "linf")
    ),
    *(Quantiser("log", bits, scale, {2: 3, 3: 2}.get(bits, 1)) for bits in (2, 3, 4, 5) for scale in ("l1", "linf")),
    *(Levels(bits, grid="float").quantiser for bits in (2, 3, 4, 5)),
]


@pytest.mark.parametrize("quantiser", LEVELS, ids=lambda q: "-".join(map(str, q)))
def test_levels(quantiser: Quantiser) -> None:
    u = update_vector((700,), 2, largest=8.0)
    assert_same_encoding(triton_ops.encode_levels(u, 3, quantiser), torch_ops.encode_levels(u, 3, quantiser))


@pytest.mark.parametrize("scale", ["l1", "linf"])
def test_levels_of_every_size(scale: Any) -> None:
    u = update_vector((65, 0, 5000, 7, 1), 3, largest=8.0)
    quantiser = Quantiser("midtread", 4, scale)
    assert_same_encoding(triton_ops.encode_levels(u, 2, quantiser), torch_ops.encode_levels(u, 2, quantiser))


@pytest.mark.parametrize("bits", [2, 5, 8])
def test_magnitudes_halfway_between_levels(bits: int) -> None:
    u = UpdateVector.of(torch.arange(-512, 512) / 256.0, Layout((1024,), 1))
    for scale in ("l1", "linf"):
        quantiser = Quantiser("midtread", bits, scale)
        assert_same_encoding(triton_ops.encode_levels(u, 3, quantiser), torch_ops.encode_levels(u, 3, quantiser))


def test_scales_that_vanish_or_nearly_do() -> None:
    """The mean of numbers as small as the first is 0 in float32: every one of them has the top level."""
    for u in (torch.tensor([1e-45] + [0.0] * 63), torch.arange(64) * 1e-43, torch.arange(64) * 2.0**-66):
        vector = UpdateVector.of(u, Layout((64,), 1))
        for quantiser in LEVELS[2::9]:
            got, expected = (body.encode_levels(vector, 3, quantiser) for body in (triton_ops, torch_ops))
            assert_same_encoding(got, expected)


def test_sums_are_added_in_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths, sums, launch = (70_001, 32_769), [], triton_ops._launch

    def spy(*place: Any, **arguments: Any) -> None:
        launch(*place, **arguments)
        if "num_chunks" in arguments:
            sums.append(arguments["sums"])

    monkeypatch.setattr(triton_ops, "_launch", spy)
    torch.manual_seed(0)
    u = torch.randn(sum(lengths)) * 2.0 ** (60 * torch.rand(sum(lengths)))  # so that float64 has to round
    vector = UpdateVector.of(u, Layout(lengths, 1))
    assert_same(triton_ops._units(vector, "l1"), torch.stack(torch_ops.units(vector, "l1")))
    for part, got in zip(u.split(lengths), sums, strict=True):
        assert_same(got, torch.stack([torch_ops.abs_sum(chunk) for chunk in part.split(torch_ops.SUM_CHUNK)]))


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("lengths", [(64, 0), (65, 0, 7, 1023, 8), (5000,)], ids=str)
def test_values(lengths: tuple[int, ...], dtype: torch.dtype) -> None:
    u = update_vector(lengths, 3)
    assert_same_encoding(triton_ops.encode_values(u, dtype), torch_ops.encode_values(u, dtype))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_one_element_that_is_not_finite_is_found(bad: float) -> None:
    u = torch.zeros(5056)
    u[4999] = bad
    vector = UpdateVector.of(u, Layout((65, 4935), 1))
    assert not triton_ops.encode_signs(vector, 1, abstain=False).finite
    assert not triton_ops.encode_levels(vector, 1, Quantiser("midrise", 3, "l1")).finite
    assert not triton_ops.encode_levels(vector, 1, Quantiser("log", 3, "linf", 2)).finite
    assert not triton_ops.encode_values(vector, BF16).finite


def test_sums_that_overflow_are_finite() -> None:
    vector = UpdateVector.of(torch.full((64,), 3e38), Layout((64,), 1))
    assert triton_ops.encode_signs(vector, 1, abstain=False).finite
    assert_same_encoding(
        triton_ops.encode_levels(vector, 1, Quantiser("midrise", 3, "l1")),
        torch_ops.encode_levels(vector, 1, Quantiser("midrise", 3, "l1")),
    )


def test_momenta_and_gradients_of_any_memory_order() -> None:
    m, g = numbers(1, 6 * 35).view(6, 35), numbers(2, 12 * 35).view(12, 35)
    u = UpdateVector([Part(m.t(), g[::2].t(), 0.9, 0.1)], Layout((6 * 35,), 1), F32, CPU)
    assert_same_encoding(triton_ops.encode_signs(u, 1, abstain=True), torch_ops.encode_signs(u, 1, abstain=True))


@pytest.mark.parametrize("m_dtype", [F32, BF16])
@pytest.mark.parametrize("encode", ["signs", "levels", "values"])
def test_the_next_momentum_is_written_on_the_way(encode: str, m_dtype: torch.dtype) -> None:
    written = []
    for body in (triton_ops, torch_ops):
        u = update_vector([1, 64, 0, 700, 65, 4097, 33], m_dtype=m_dtype, g_dtype=BF16)
        nexts = [None if part.m is None else torch.full_like(part.m, 7.0) for part in u.parts]
        parts = [
            part._replace(next_m=next_m, next_beta=0.99, next_gain=0.01)
            for part, next_m in zip(u.parts, nexts, strict=True)
        ]
        u = UpdateVector(parts, u.layout, F32, CPU)
        encoded = {
            "signs": lambda body=body, u=u: body.encode_signs(u, 1, abstain=False),
            "levels": lambda body=body, u=u: body.encode_levels(u, 1, LEVELS[0]),
            "values": lambda body=body, u=u: body.encode_values(u, F32),
        }[encode]()
        written.append((encoded, nexts))
    (got, mine), (expected, theirs) = written
    assert_same_encoding(got, expected)
    for a, b in zip(mine, theirs, strict=True):
        if a is not None and b is not None:
            assert_same(a, b)
    assert mine[0] is not None
    assert float(mine[0]) != 7.0


@few
@given(u=cases.updates(cases.SMALL), step=st.integers(0, 9), abstain=st.booleans())
def test_signs_of_drawn_updates(u: UpdateVector, step: int, abstain: bool) -> None:
    got, expected = (body.encode_signs(u, step, abstain=abstain) for body in (triton_ops, torch_ops))
    assert_same_encoding(got, expected)


@few
@given(u=cases.updates(cases.SMALL), step=st.integers(0, 9), quantiser=st.sampled_from(LEVELS))
def test_levels_of_drawn_updates(u: UpdateVector, step: int, quantiser: Quantiser) -> None:
    got, expected = (body.encode_levels(u, step, quantiser) for body in (triton_ops, torch_ops))
    assert_same_encoding(got, expected)


@few
@given(u=cases.updates(cases.SMALL), dtype=st.sampled_from((F32, BF16)))
def test_values_of_drawn_updates(u: UpdateVector, dtype: torch.dtype) -> None:
    assert_same_encoding(triton_ops.encode_values(u, dtype), torch_ops.encode_values(u, dtype))


# ---- combining -----------------------------------------------------------------------------------------------------

TALLIES = {
    "vote": Tally((1,), True, False),
    "vote, ties are zero": Tally((1,), False, True),
    "abstain": Tally((0, 1), True, True),
    "abstain, ties are zero": Tally((0, 1), False, True),
    "midrise": Tally((1, 3, 5, 7), True, False),
    "midtread": Tally(tuple(range(16)), False, True),
    "log": Tally(tuple(2**e for e in range(16)), True, False),
    "two": Tally((1, 8), True, False),
    "weights": Tally((0, 2, 3, 11), True, True),
}


def ballot(num_workers: int, step: int) -> tuple[Layout, Ballot]:
    """Spans that share words: everybody votes, all but one, nobody, every other."""
    layout = Layout((65, 500, 7, 40), num_workers)
    everyone = tuple(range(num_workers))
    return layout, Ballot.of(layout, step, [everyone, everyone[1:], (), everyone[::2]])


def ballots_with_ties(num_workers: int, blocks: int, planes: int) -> Tensor:
    """Half of the workers mostly vote against the other half."""
    payloads, half = random_bytes(1, num_workers, blocks, 8 * planes), num_workers // 2
    payloads[half : 2 * half] = payloads[:half]
    payloads[half : 2 * half, :, :8] ^= ~(random_bytes(2, half, blocks, 8) & random_bytes(3, half, blocks, 8))
    return payloads


@pytest.mark.parametrize("num_workers", WORKERS)
def test_majority(num_workers: int) -> None:
    layout, votes = ballot(num_workers, num_workers + 1)
    names = list(TALLIES) if num_workers in (2, 5) else list(TALLIES)[(num_workers + 1) % 3 :: 3]
    for name in names:
        payloads = ballots_with_ties(num_workers, layout.blocks, 1 + TALLIES[name].index_bits)
        got = triton_ops.majority(payloads, votes, TALLIES[name])
        assert_same(got, torch_ops.majority(payloads, votes, TALLIES[name]))


@pytest.mark.parametrize("num_workers", WORKERS)
def test_count_ones(num_workers: int) -> None:
    layout, votes = ballot(num_workers, 1)
    payloads = random_bytes(num_workers, num_workers, layout.blocks, 8)
    assert_same(triton_ops.count_ones(payloads, votes), torch_ops.count_ones(payloads, votes))


def test_payloads_of_any_memory_order_and_alignment() -> None:
    layout, votes = ballot(3, 1)
    room = random_bytes(0, 3, layout.blocks + 2, 8)
    shifted = random_bytes(1, 3 * layout.blocks * 8 + 3)[3:].view(3, layout.blocks, 8)
    for payloads in (room[:, 1:-1], shifted, room.flip(2)[:, :-2], room.transpose(0, 1)[:3].expand(3, 3, 8)):
        blocks = payloads.shape[1]
        part = votes.part(0, 64 * blocks)
        assert_same(triton_ops.count_ones(payloads, part), torch_ops.count_ones(payloads.clone(), part))
        assert_same(
            triton_ops.majority(payloads, part, TALLIES["vote"]),
            torch_ops.majority(payloads.clone(), part, TALLIES["vote"]),
        )


def test_no_blocks() -> None:
    votes = Ballot.of(Layout((0,), 2), 1, [(0, 1)])
    assert triton_ops.majority(torch.zeros(2, 0, 16, dtype=torch.uint8), votes, TALLIES["abstain"]).shape == (0, 16)
    assert triton_ops.count_ones(torch.zeros(2, 0, 8, dtype=torch.uint8), votes).shape == (0, 16)


# ---- moving --------------------------------------------------------------------------------------------------------


def direction(kind: str, planes: int, blocks: int) -> Direction:
    if kind in ("signs", "counts"):
        return Direction(kind, random_bytes(7, blocks, 8 * planes))  # type: ignore[arg-type]
    dtype = BF16 if planes == 2 else F32
    values = numbers(7, 64 * blocks, dtype)
    values[::17] = float("nan")
    values.view(torch.uint8)[: 4 * dtype.itemsize] = 0xFF  # NaNs that adding to their bits would make numbers
    return Direction(kind, values.view(torch.uint8).view(blocks, -1), dtype)  # type: ignore[arg-type]


DIRECTIONS = [("signs", 1), ("signs", 2), ("counts", 3), ("counts", 6), ("sign-of", 1), ("sign-of", 2), ("values", 1)]


def assert_same_moves(moves: Sequence[Move], toward: Direction) -> None:
    got, expected = ([_copied(move) for move in moves] for _ in range(2))
    triton_ops.apply_(got, toward)
    torch_ops.apply_(expected, toward)
    for a, b in zip(got, expected, strict=True):
        assert_same(a.x, b.x)
        if a.m is not None and b.m is not None:
            assert_same(a.m, b.m)


def _copied(move: Any) -> Any:
    """With an x and an m of its own, of the same memory order."""
    copies = {name: _copy(getattr(move, name)) for name in ("x", "m") if getattr(move, name) is not None}
    return move._replace(**copies)


def _copy(tensor: Tensor) -> Tensor:
    room = torch.zeros(tensor.untyped_storage().nbytes() // tensor.itemsize, dtype=tensor.dtype)
    return room.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).copy_(tensor)


@pytest.mark.parametrize(("kind", "planes"), DIRECTIONS)
def test_moves_of_every_precision(kind: str, planes: int) -> None:
    toward = direction(kind, planes, 5)
    for k, (x, m, g) in enumerate(product((F32, BF16, F16), (None, F32, BF16), (F32, BF16, F16))):
        noise, voters = NOISES[k % 3], (k % 7, 33)[planes > 3]
        momentum, gradient = (None if dtype is None else numbers(k + 1, 200, dtype) for dtype in (m, g))
        move = Move(numbers(k, 200, x), k % 5, 1e-3, 0.9999, voters, momentum, gradient, 0.99, 0.01, noise)
        assert_same_moves([move], toward)


def test_moves_of_every_size() -> None:
    layout = Layout(SIZES, 2)
    toward = direction("signs", 1, layout.blocks)
    moves = [
        Move(numbers(n, n, BF16), start, 1e-2, 0.99, 2, numbers(n, n), numbers(n + 1, n), 0.99, 0.01, NOISES[1])
        for start, n in zip(layout.starts, layout.lengths, strict=True)
    ]
    assert_same_moves(moves, toward)


def test_moves_of_any_memory_order() -> None:
    x, m, g = (numbers(k, 40 * 6).view(40, 6) for k in range(3))
    moves = [
        Move(x.t(), 3, 1e-2, 0.99, 2, m.view(6, 40), g.view(6, 40), 0.99, 0.01),
        Move(x, 3, 1e-2, 0.99, 2, m.view(6, 40).t(), g.view(6, 40).t(), 0.99, 0.01),
        Move(x[::2], 3, 1e-2, 0.99, 2, m[1::2], g[:20], 0.99, 0.01),
        Move(x[::2].t(), 3, 1e-2, 0.99, 2),
    ]
    assert_same_moves(moves, direction("signs", 2, 8))


@few
@given(drawn=cases.moves_along(cases.SMALL))
def test_drawn_moves_and_strides(drawn: cases.MovesAlong) -> None:
    moves = drawn.made()
    assert_same_moves(moves, drawn.direction)
    assert_same_strides(cases.strides(moves))


def test_a_column_of_a_table() -> None:
    """Strides other than 1 that are all the same: a flat view of it is not contiguous either."""
    table = torch.zeros(8, 4)
    m, g = numbers(1, 16)[::2], torch.ones(24)[::3]
    triton_ops.lion_([Stride(table[:, 1], m, g, 1.0, 1.0, 0.0, 1.0, 0.99, 0.01)])
    assert torch.equal(table, torch.tensor([0.0, -1.0, 0.0, 0.0]).expand(8, 4))


def test_a_direction_that_is_not_aligned() -> None:
    payload = random_bytes(3, 5 * 16 + 3)[3:].view(5, 16)
    assert_same_moves([Move(numbers(0, 200), 64, 1e-2, 1.0, 2)], Direction("signs", payload))


@pytest.mark.parametrize("noise", NOISES)
def test_lion(noise: Noise | None) -> None:
    strides = []
    for k, (x, m, g) in enumerate(product((F32, BF16, F16), (F32, BF16), (F32, BF16, F16))):
        momentum, gradient = numbers(k + 1, 200, m), numbers(k + 2, 200, g)
        momentum[3 * k], gradient[5 * k] = float("nan"), float("inf")
        strides.append(Stride(numbers(k, 200, x), momentum, gradient, 1e-3, 0.9999, 0.9, 0.1, 0.99, 0.01, noise))
    assert_same_strides(strides)


def test_lion_of_every_size_and_memory_order() -> None:
    sizes = [
        Stride(numbers(n, n), numbers(n + 1, n), numbers(n + 2, n), 1e-2, 1.0, 0.9, 0.1, 0.99, 0.01) for n in SIZES
    ]
    x, m, g = (numbers(k, 200).view(10, 20) for k in range(3))
    views = [Stride(x.t(), m.t(), g.view(20, 10), 1e-2, 1.0, 0.9, 0.1, 0.99, 0.01)]
    assert_same_strides(sizes + views)


def assert_same_strides(strides: Sequence[Stride]) -> None:
    got, expected = ([_copied(stride) for stride in strides] for _ in range(2))
    assert triton_ops.lion_(got) == torch_ops.lion_(expected)
    for a, b in zip(got, expected, strict=True):
        assert_same(a.x, b.x)
        assert_same(a.m, b.m)


def test_float64_is_torch_ops_business() -> None:
    x, m, g = (numbers(k, 100, F64) for k in range(3))
    assert_same_moves([Move(x, 3, 1e-2, 0.99, 2, m, g, 0.99, 0.01)], direction("signs", 1, 2))
    assert_same_strides([Stride(x, m, g, 1e-2, 1.0, 0.9, 0.1, 0.99, 0.01)])
    u = UpdateVector.of(numbers(1, 64, F64), Layout((64,), 1))
    levels = Quantiser("midrise", 3, "l1")
    assert_same_encoding(triton_ops.encode_signs(u, 1, abstain=True), torch_ops.encode_signs(u, 1, abstain=True))
    assert_same_encoding(triton_ops.encode_levels(u, 1, levels), torch_ops.encode_levels(u, 1, levels))
    assert_same_encoding(triton_ops.encode_values(u, F64), torch_ops.encode_values(u, F64))


def test_noise_of_coordinates_beyond_32_bits() -> None:
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator]
    def kernel(out, coordinates, low, high, N: tl.constexpr):  # type: ignore[no-untyped-def]
        where = tl.arange(0, N)
        tl.store(out + where, triton_kernels.hashed(tl.load(coordinates + where), low, high))

    coordinates = torch.randint(0, 1 << 62, (64,)) >> torch.arange(64) % 60
    out = torch.zeros(64, dtype=torch.int64)
    for noise in NOISES[1:]:
        keys = triton_ops._noise(coordinates, noise)
        kernel[(1,)](out, coordinates, keys["noise_low"], keys["noise_high"], N=64)
        assert torch.equal(out, hashed(coordinates, noise))


@pytest.mark.parametrize("call", cases.REFUSED.values(), ids=cases.REFUSED)
def test_what_does_not_fit_is_refused(call: Callable[[Any], object]) -> None:
    with pytest.raises(ValueError, match=r"need|not|choose|as many"):
        call(triton_ops)


# ---- looking back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", WORKERS)
def test_matches(num_workers: int) -> None:
    cuts = [Cut(0, 640, num_workers), Cut(3, 70, max(num_workers - 1, 1)), Cut(64, 65, 1), Cut(9, 9, 2)]
    outcomes = [("signs", 1), ("signs", 2), ("counts", num_workers.bit_length())]
    for (kind, planes), (up, own_zeros) in product(outcomes, [(1, False), (3, True), (2, False)]):
        toward, payload = direction(kind, planes, 10), random_bytes(num_workers, 10, 8 * up)
        got = triton_ops.count_matches(payload, toward, cuts, own_zeros=own_zeros)
        assert got == torch_ops.count_matches(payload, toward, cuts, own_zeros=own_zeros)


def test_fingerprint() -> None:
    assert triton_ops.fingerprint(numbers(0, 99).t(), 7) == torch_ops.fingerprint(numbers(0, 99).t(), 7)


def test_the_body_can_be_chosen() -> None:
    u = update_vector((65, 70))
    with kernels.using("triton"):
        encoded = kernels.encode_signs(u, 1, abstain=False)
    assert_same_encoding(encoded, torch_ops.encode_signs(u, 1, abstain=False))
