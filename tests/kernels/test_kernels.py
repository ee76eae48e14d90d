"""Every body of every kernel equals the torch one bit for bit; the torch one equals what the papers say elsewhere."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lioncub import Levels, Vote, kernels
from lioncub.codecs.levels import Grid, Scale
from lioncub.codecs.sign_magnitude import SignMagnitude
from lioncub.kernels import Cut, Direction, Part, UpdateVector, native, torch_ops
from lioncub.kernels.layout import Ballot, Layout, Span
from tests.support import kernel_cases as cases
from tests.support.kernel_cases import same_bits
from tests.toy_codec import Sixth

pytestmark = pytest.mark.skipif(bool(native.why_not()), reason=native.why_not() or "built")

SETS = native.describe().get("usable", "").split(", ")
TABLES = "tables of addresses"
OTHER_PACE = "another pace"
GRIDS: dict[Grid, int] = {"midrise": 8, "midtread": 8, "log": 5}
SCALES: tuple[Scale, ...] = ("l1", "linf")
LEVELS = [Levels(bits, scale, grid) for grid, most in GRIDS.items() for bits in range(2, most + 1) for scale in SCALES]
LEVELS += [Levels(bits, grid="float") for bits in range(2, 6)]
TALLIES: list[SignMagnitude] = [Vote(), Vote(ties="zero"), Vote(zeros="abstain"), Vote("zero", "abstain"), Sixth()]
TALLIES += LEVELS[::3]
WORKERS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 14, 15, 16, 17, 31, 32, 33, 63, 64, 100, 128, 255, 256, 257)
many = settings(max_examples=25, deadline=None)


@pytest.fixture(params=[*SETS, TABLES, *(f"{name}, {OTHER_PACE}" for name in SETS)], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Every test runs with each instruction set that this processor has, once as with a torch before 2.10, and once
    walking over memory as on processors of another maker."""
    if request.param == TABLES:
        for name in ("read_update", "read_moves", "read_strides"):
            monkeypatch.setattr(native._native, name, lambda *_: None)  # type: ignore[attr-defined]
    name, _, pace = SETS[0].partition(", ") if request.param == TABLES else request.param.partition(", ")
    lanes = native._native.in_lanes() != bool(pace)  # type: ignore[attr-defined]
    with native.instruction_set(name), native.pace(lanes=lanes):
        yield request.param


def test_plain_tensors_are_read_by_torchs_interface_to_c(way: str) -> None:
    operands = [Part(torch.zeros(5), torch.zeros(5))], [0], [5]
    read = native._native.read_update(*operands)  # type: ignore[attr-defined]
    assert (read is None) == (way == TABLES or not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"))


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def test_blocks_that_choose_a_body_nest() -> None:
    cpu = torch.device("cpu")
    with kernels.using("native"), kernels.using("torch"):
        with kernels.using("native"):
            assert kernels.body_for(cpu) is native
        assert kernels.body_for(cpu) is torch_ops


# ---- encoding ------------------------------------------------------------------------------------------------------


def assert_encoded_alike(mine: kernels.Encoded, theirs: kernels.Encoded) -> None:
    assert mine.finite == theirs.finite
    if mine.finite:
        assert torch.equal(mine.payload, theirs.payload)


@many
@given(u=cases.updates(finite=False), step=st.integers(0, 9), abstain=st.booleans())
def test_signs(u: UpdateVector, step: int, abstain: bool) -> None:
    assert_encoded_alike(
        native.encode_signs(u, step, abstain=abstain), torch_ops.encode_signs(u, step, abstain=abstain)
    )


@many
@given(u=cases.updates(), step=st.integers(0, 9), codec=st.sampled_from(LEVELS))
def test_levels(u: UpdateVector, step: int, codec: Levels) -> None:
    assert_encoded_alike(
        native.encode_levels(u, step, codec.quantiser), torch_ops.encode_levels(u, step, codec.quantiser)
    )


@many
@given(u=cases.updates(finite=False), codec=st.sampled_from(LEVELS))
def test_levels_of_numbers_that_are_not_finite(u: UpdateVector, codec: Levels) -> None:
    assert_encoded_alike(native.encode_levels(u, 0, codec.quantiser), torch_ops.encode_levels(u, 0, codec.quantiser))


@many
@given(u=cases.updates(finite=False), dtype=st.sampled_from(cases.MOMENTA))
def test_values(u: UpdateVector, dtype: torch.dtype) -> None:
    mine, theirs = native.encode_values(u, dtype), torch_ops.encode_values(u, dtype)
    assert mine.finite == theirs.finite
    if u.layout.blocks and mine.finite:
        assert same_bits(mine.payload.view(dtype), theirs.payload.view(dtype))


def test_one_bad_number_among_many_is_found() -> None:
    for bad in cases.NOT_FINITE:
        for where in (0, 70_000, 299_999):
            g = torch.randn(300_000)
            g[where] = bad
            u = UpdateVector([Part(torch.zeros(300_000), g, 0.9, 0.1)], Layout((300_000,), 1), torch.float32, g.device)
            with threads(2):
                assert not native.encode_signs(u, 0, abstain=False).finite
                assert not native.encode_values(u, torch.float32).finite
                for codec in (Levels(4), Levels(4, "linf"), Levels(4, grid="log")):
                    assert not native.encode_levels(u, 0, codec.quantiser).finite


def test_a_large_bucket_shared_by_threads() -> None:
    torch.manual_seed(0)
    sizes = (400_001, 3, 70_000, 64, 1_000_000, 1)
    parts = [Part(torch.randn(n), torch.randn(n) ** 3, 0.9, 0.1) for n in sizes]
    u = UpdateVector(parts, Layout(sizes, 3), torch.float32, torch.device("cpu"))
    for count in (1, 2, 5):
        with threads(count):
            assert_encoded_alike(native.encode_signs(u, 1, abstain=True), torch_ops.encode_signs(u, 1, abstain=True))
            for codec in (Levels(4, grid="log"), Levels(3, "linf")):
                assert_encoded_alike(
                    native.encode_levels(u, 1, codec.quantiser), torch_ops.encode_levels(u, 1, codec.quantiser)
                )


# ---- combining -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", WORKERS)
def test_majority(workers: int) -> None:
    for number, codec in enumerate(TALLIES):
        for blocks in (1, 40, 41) if workers < 10 else (9,):
            planes = 1 + codec.tally.index_bits
            payloads = cases.payloads(workers, blocks, planes, number, apart=48 * (number % 2))
            ballot = cases.ballot(blocks, workers, number, number)
            mine = native.majority(payloads, ballot, codec.tally)
            assert torch.equal(mine, torch_ops.majority(payloads, ballot, codec.tally)), codec


@pytest.mark.parametrize("workers", WORKERS)
def test_count_ones(workers: int) -> None:
    for blocks in (1, 17, 600):
        payloads = cases.payloads(workers, blocks, 1, workers)
        ballot = cases.ballot(blocks, workers, 0, workers)
        assert torch.equal(native.count_ones(payloads, ballot), torch_ops.count_ones(payloads, ballot))


def test_nobody_votes() -> None:
    payloads, nobody = cases.payloads(3, 4, 1, 0), Ballot(0, (Span(0, 256, ()),))
    for codec in (Vote(), Vote(ties="zero")):
        mine = native.majority(payloads, nobody, codec.tally)
        assert torch.equal(mine, torch_ops.majority(payloads, nobody, codec.tally))
    assert not native.count_ones(payloads, nobody).any()


def test_a_large_vote_shared_by_threads() -> None:
    for workers in (2, 4, 5, 7, 8, 16, 33):
        payloads = cases.payloads(workers, 20_003, 1, workers)
        ballot = Ballot(3, (Span(0, 20_003 * 64, tuple(range(workers))),))
        for count in (1, 3):
            with threads(count):
                mine = native.majority(payloads, ballot, Vote().tally)
            assert torch.equal(mine, torch_ops.majority(payloads, ballot, Vote().tally))


def test_the_torch_majority_adds_up_integers() -> None:
    """The bit-sliced sum against sums of integers, voter by voter."""
    for codec in TALLIES:
        payloads = cases.payloads(5, 7, 1 + codec.tally.index_bits, 1)
        span = Span(0, 7 * 64, (0, 2, 3, 4))
        values = torch.stack([codec.values(payloads[voter]) for voter in span.voters])
        total = values.sum(0)
        if codec.casting:
            total = torch.where(total == 0, codec.values(payloads[span.casting_voter(2)]), total)
        expected = torch.sign(total).float() if codec.ternary else torch.where(total > 0, 1.0, -1.0)
        ballot = Ballot(2, (span,))
        assert torch.equal(codec.decode(torch_ops.majority(payloads, ballot, codec.tally), ballot), expected)


# ---- moving --------------------------------------------------------------------------------------------------------


@many
@given(drawn=cases.moves_along(cases.SIZES))
def test_apply(drawn: cases.MovesAlong) -> None:
    outcomes = []
    for body in (native, torch_ops):
        moves = drawn.made()
        body.apply_(moves, drawn.direction)
        outcomes.append(moves)
    for mine, theirs in zip(*outcomes, strict=True):
        assert same_bits(mine.x, theirs.x)
        if mine.m is not None and theirs.m is not None:
            assert same_bits(mine.m, theirs.m)


@many
@given(
    sizes=st.lists(st.sampled_from(cases.SIZES), min_size=2, max_size=4),
    dtypes=st.tuples(st.sampled_from(cases.STORED), st.sampled_from(cases.MOMENTA), st.sampled_from(cases.STORED)),
    order=st.sampled_from(cases.ORDERS),
    noise=st.booleans(),
    broken=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_lion(
    sizes: list[int],
    dtypes: tuple[torch.dtype, torch.dtype, torch.dtype],
    order: str,
    noise: bool,
    broken: bool,
    seed: int,
) -> None:
    outcomes = []
    for body in (native, torch_ops):
        strides = cases.strides(cases.moves(sizes, dtypes, order, seed, noise=noise))
        for stride in strides if broken else ():
            stride.g[::3] = float("nan")
            stride.g[1::5] = float("-inf")
        outcomes.append((body.lion_(strides), strides))
    (skipped, mine), (expected, theirs) = outcomes
    assert skipped == expected
    for a, b in zip(mine, theirs, strict=True):
        assert same_bits(a.x, b.x)
        assert same_bits(a.m, b.m)


def test_a_float16_momentum_is_left_to_torch() -> None:
    """C++ has no bodies for it: picking one would jump anywhere."""
    outcomes = []
    for body in (native, torch_ops):
        moves = cases.moves((1000, 65, 7), (torch.float32, torch.float16, torch.float32), "contiguous", 0, noise=False)
        body.apply_(moves, cases.direction("signs", 18, 0))
        strides = cases.strides(moves)
        body.lion_(strides)
        room = [torch.zeros_like(stride.m) for stride in strides]
        parts = [
            Part(stride.m, stride.g, 0.9, 0.1, next_m, 0.99, 0.01) for stride, next_m in zip(strides, room, strict=True)
        ]
        u = UpdateVector(parts, Layout((1000, 65), 1), torch.float32, torch.device("cpu"))
        payload = body.encode_signs(u, 0, abstain=False).payload
        outcomes.append([payload.view(torch.int16), *room, *(t for s in strides for t in (s.x, s.m))])
    assert all(same_bits(mine, theirs) for mine, theirs in zip(*outcomes, strict=True))


def test_tables_refuse_types_that_have_no_body() -> None:
    f16, unknown = 2, 3
    for ints, floats in (([0, 0, 0, 0, f16, 8], [0.0] * 4), ([0, 0, 0, 0, unknown, 0], [0.0] * 4)):
        with pytest.raises(ValueError, match="float32"):
            native._native.table_update(ints, floats)  # type: ignore[attr-defined]
    for types in (f16 << 2, unknown, unknown << 4):
        with pytest.raises(ValueError, match="float32"):
            native._native.table_moves([0, 0, 0, 0, 0, types, 1, -1, 0], [0.0] * 4)  # type: ignore[attr-defined]
        with pytest.raises(ValueError, match="float32"):
            native._native.table_strides([0, 0, 0, 0, types, -1, 0], [0.0] * 6)  # type: ignore[attr-defined]


def test_one_tensor_that_is_not_plain_does_not_slow_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call for all plain ones, one for each of the rest; a float16 momentum is torch's."""
    calls = []

    def counted(kernel: Callable[..., Any]) -> Callable[..., Any]:
        def call(*operands: Any) -> Any:
            calls.append(kernel)
            return kernel(*operands)

        return call

    for name in ("lion", "apply"):
        kernel = getattr(native._native, name)  # type: ignore[attr-defined]
        monkeypatch.setattr(native._native, name, counted(kernel))  # type: ignore[attr-defined]
    outcomes = []
    for body in (native, torch_ops):
        moves = cases.moves((7,) * 40, (torch.float32,) * 3, "contiguous", 0, noise=False)
        moves[5] = moves[5]._replace(x=cases.in_some_order(moves[5].x, "strided"))
        moves[9] = moves[9]._replace(m=cases.numbers(7, torch.float16, 3))
        body.apply_(moves, cases.direction("signs", 5, 0))
        body.lion_(cases.strides(moves))
        outcomes.append(moves)
    assert len(calls) == 4
    for mine, theirs in zip(*outcomes, strict=True):
        assert same_bits(mine.x, theirs.x)
        assert mine.m is None or theirs.m is None or same_bits(mine.m, theirs.m)


def test_moving_a_large_tensor_with_threads() -> None:
    direction = cases.direction("ternary", 20_000, 1)
    for count in (1, 2, 3):
        outcomes = []
        for body in (native, torch_ops):
            moves = cases.moves((600_001, 65, 400_000), (torch.float32,) * 3, "contiguous", 3, noise=False)
            with threads(count):
                body.apply_(moves, direction)
                body.lion_(cases.strides(moves))
            outcomes.append(moves)
        for mine, theirs in zip(*outcomes, strict=True):
            assert same_bits(mine.x, theirs.x)


def test_stochastic_rounding_depends_on_the_coordinate_alone() -> None:
    """Not on the chunks in which a body works: the same numbers in tensors of more than one of them."""
    direction = cases.direction("ternary", 10_000, 1)
    outcomes = []
    for body in (native, torch_ops):
        moves = cases.moves((torch_ops.CHUNK + 70_001,), (torch.bfloat16,) * 3, "contiguous", 3, noise=True)
        body.apply_(moves, direction)
        outcomes.append(moves[0].x)
    assert same_bits(*outcomes)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_half_precision_number_survives(dtype: torch.dtype) -> None:
    """Widened and rounded back, all 65,536 of them; and what lies between rounds as torch rounds it."""
    every = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(dtype)
    move = replaced_x(every.clone())
    native.apply_([move], Direction("values", torch.zeros(1024, 256, dtype=torch.uint8)))
    assert same_bits(move.x, torch.where(every.isnan(), every.new_tensor(float("nan")), every))
    wide = torch.randint(-(2**31), 2**31, (65536,), generator=torch.Generator().manual_seed(0)).to(torch.int32)
    between = wide.view(torch.float32).nan_to_num(1.0, 2.0, 3.0)
    move = replaced_x(torch.zeros(65536, dtype=dtype))
    native.apply_([move], Direction("values", (-between).view(torch.uint8).view(1024, 256)))
    assert same_bits(move.x, between.to(dtype))


@pytest.fixture
def flushing() -> Iterator[None]:
    """The processor takes subnormal float32 numbers for zero."""
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush subnormal numbers")
    yield
    torch.set_flush_denormal(False)


@pytest.mark.usefixtures("flushing")
def test_half_precision_does_not_depend_on_flushing() -> None:
    """A subnormal float16 is a normal float32."""
    every = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(torch.float16)
    every = every[every.isfinite()]
    move = replaced_x(every.clone())
    native.apply_([move], Direction("values", torch.zeros(1024, 256, dtype=torch.uint8)))
    assert same_bits(move.x, every)
    outcomes = []
    for body in (native, torch_ops):
        x, m = every.clone(), torch.zeros(len(every))
        u = UpdateVector([Part(every)], Layout((len(every),), 1), torch.float32, every.device)
        body.lion_([kernels.Stride(x, m, every, 3e-5, 0.5, 0.9, 0.1, 0.99, 0.01)])
        levels = body.encode_levels(u, 1, Levels(4, grid="log").quantiser)
        outcomes.append((x, m, levels.payload, body.encode_signs(u, 1, abstain=True).payload))
    (x, m, *mine), (expected_x, expected_m, *theirs) = outcomes
    assert same_bits(x, expected_x)
    assert same_bits(m, expected_m)
    assert all(map(torch.equal, mine, theirs))


def replaced_x(x: torch.Tensor) -> kernels.Move:
    return kernels.Move(x, 0, 1.0, 1.0, 1)


# ---- looking back --------------------------------------------------------------------------------------------------


@many
@given(
    blocks=st.integers(0, 70),
    kind=st.sampled_from(["signs", "ternary", "counts"]),
    planes=st.integers(1, 4),
    own_zeros=st.booleans(),
    data=st.data(),
)
def test_matches(blocks: int, kind: str, planes: int, own_zeros: bool, data: st.DataObject) -> None:
    ends = sorted(data.draw(st.lists(st.integers(0, blocks * 64), min_size=2, max_size=6)))
    cuts = [Cut(start, stop, 1 + k % 3) for k, (start, stop) in enumerate(itertools.pairwise(ends))]
    payload, direction = cases.payload(blocks, planes, blocks), cases.direction(kind, blocks, planes)
    mine = native.count_matches(payload, direction, cuts, own_zeros=own_zeros)
    assert mine == torch_ops.count_matches(payload, direction, cuts, own_zeros=own_zeros)


@many
@given(
    size=st.sampled_from([0, 1, 3, 31, 63, 64, 127, 128, 129, 511, 512, 513, 767, 768, 1000, 4097]),
    crc=st.integers(0, 2**32 - 1),
)
def test_fingerprint_is_zlibs(size: int, crc: int) -> None:
    data = cases.payload(1, size // 8 + 1, size).view(-1)[:size]
    assert native.fingerprint(data, crc) == zlib.crc32(data.numpy().tobytes(), crc) == torch_ops.fingerprint(data, crc)
    strided = torch.randn(size + 1, 2)[:, 0]
    assert native.fingerprint(strided, crc) == torch_ops.fingerprint(strided, crc)


@pytest.mark.parametrize("size", [0, 1, 7, 63, 64, 65, 1023, 100_000])
def test_checksums_of_messages_are_zlibs(size: int) -> None:
    room = torch.randint(0, 256, (3, size + 5), dtype=torch.uint8)
    expected = [zlib.crc32(row[:size].numpy().tobytes()) for row in room]
    assert native.checksums(room, size) == torch_ops.checksums(room, size) == expected
    same = room[:1].expand(4, -1)
    assert native.checksums(same, size) == torch_ops.checksums(same, size) == expected[:1] * 4


@pytest.mark.parametrize(
    ("rows", "num_bytes"),
    [
        (torch.zeros(2, 9, dtype=torch.uint8), 10),
        (torch.zeros(2, 9, dtype=torch.uint8), -1),
        (torch.zeros(9, 2, dtype=torch.uint8).T, 4),
        (torch.zeros(2, 9), 4),
        (torch.zeros(9, dtype=torch.uint8), 4),
    ],
)
def test_messages_that_do_not_fit_have_no_checksums(rows: torch.Tensor, num_bytes: int) -> None:
    for body in (native, torch_ops):
        with pytest.raises(ValueError, match=r"\d"):
            body.checksums(rows, num_bytes)


# ---- bad operands --------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused_before_anything_is_read() -> None:
    u = UpdateVector([Part(torch.zeros(5))], Layout((6,), 1), torch.float32, torch.device("cpu"))
    with pytest.raises(ValueError, match="6 elements"):
        native.encode_signs(u, 0, abstain=False)
    with pytest.raises(ValueError, match="not in a direction of 64"):
        native.apply_([replaced_x(torch.zeros(65))], cases.direction("signs", 1, 0))
    with pytest.raises(ValueError, match="not in payloads"):
        native.majority(cases.payloads(2, 1, 1, 0), Ballot(0, (Span(0, 64, (0, 2)),)), Vote().tally)
    with pytest.raises(ValueError, match="8 bytes a block"):
        native.count_ones(cases.payloads(2, 1, 2, 0), Ballot(0, (Span(0, 64, (0,)),)))
    with pytest.raises(ValueError, match="cuts"):
        native.count_matches(cases.payload(1, 1, 0), cases.direction("signs", 1, 0), [Cut(0, 65, 1)], own_zeros=False)


@pytest.mark.parametrize("call", cases.REFUSED.values(), ids=cases.REFUSED)
def test_every_body_refuses_what_does_not_fit(call: Callable[[Any], object]) -> None:
    """A crash, or wrong numbers, if it did not."""
    for body in (native, torch_ops):
        with pytest.raises(ValueError, match=r"need|not|choose|as many"):
            call(body)


@pytest.mark.parametrize("dtype", [*cases.STORED, torch.float64])
def test_signs_of_numbers_of_every_type(dtype: torch.dtype) -> None:
    values = cases.numbers(640, torch.float32, 0, finite=False).to(dtype)
    outcomes = []
    for body in (native, torch_ops):
        move = replaced_x(torch.zeros(640))
        body.apply_([move], Direction("sign-of", values.view(torch.uint8).view(10, -1), dtype))
        outcomes.append(move.x)
    assert same_bits(*outcomes)


def test_the_edges_are_the_same_in_all_bodies() -> None:
    """Counts that nobody voted on, elements in no span, payloads at odd addresses, no tensors at all."""
    votes, odd = cases.payloads(3, 4, 1, 0), cases.payload(1, 4 * 32 + 1, 0).view(-1)[3 : 3 + 4 * 256].view(4, 256)
    nothing = UpdateVector([], Layout((), 1), torch.float32, torch.device("cpu"))
    outcomes = []
    for body in (native, torch_ops):
        found = []
        for num_voters in (-1, 0, 3):
            x = torch.zeros(256)
            body.apply_([kernels.Move(x, 0, 1.0, 1.0, num_voters)], cases.direction("counts", 4, 0))
            found.append(x)
        for kind in ("values", "sign-of"):
            x = torch.zeros(256)
            body.apply_([replaced_x(x)], Direction(kind, odd))
            found.append(x.view(torch.int32))
        for spans in ((), (Span(0, 64, (0, 1, 2)),), (Span(70, 130, (1,)), Span(130, 256, (0,)))):
            found += [body.majority(votes, Ballot(0, spans), Vote().tally), body.count_ones(votes, Ballot(0, spans))]
        found.append(body.encode_signs(nothing, 0, abstain=False).payload)
        found.append(body.encode_levels(nothing, 0, Levels(3).quantiser).payload)
        outcomes.append(found)
    assert all(map(torch.equal, *outcomes))


@pytest.mark.parametrize("magnitudes", [(2,), (3,), (0, 1), (0, 5), (1, 6), (0, 2, 3, 9)])
@pytest.mark.parametrize("num_voters", [1, 2, 3, 8])
def test_magnitudes_of_any_kind(magnitudes: tuple[int, ...], num_voters: int) -> None:
    tally = replace_magnitudes(magnitudes)
    payloads, ballot = cases.payloads(num_voters, 70, 1 + tally.index_bits, 0), cases.ballot(70, num_voters, 0, 0)
    assert torch.equal(native.majority(payloads, ballot, tally), torch_ops.majority(payloads, ballot, tally))


@pytest.mark.parametrize(
    "encode",
    [
        lambda body, u: body.encode_signs(u, 0, abstain=True),
        lambda body, u: body.encode_levels(u, 0, Levels(4).quantiser),
        lambda body, u: body.encode_values(u, torch.float64),
        lambda body, u: body.encode_values(u, torch.float32),
    ],
)
def test_numbers_too_small_for_float32_are_not_zeros(encode: Callable[[Any, UpdateVector], kernels.Encoded]) -> None:
    tiny = UpdateVector.of(torch.full((70,), 1e-300, dtype=torch.float64), Layout((70,), 1))
    assert_encoded_alike(encode(native, tiny), encode(torch_ops, tiny))


def test_magnitudes_without_a_rule_fall_back_to_torch() -> None:
    tally = replace_magnitudes(tuple(sorted(range(3, 35))))
    payloads, ballot = cases.payloads(4, 5, 6, 0), cases.ballot(5, 4, 0, 0)
    assert torch.equal(native.majority(payloads, ballot, tally), torch_ops.majority(payloads, ballot, tally))


def replace_magnitudes(magnitudes: tuple[int, ...]) -> kernels.Tally:
    return Levels(2).tally._replace(magnitudes=magnitudes)


def test_payloads_at_odd_addresses() -> None:
    flat = cases.payload(1, 3 * 5 + 1, 0).view(-1)
    payloads = flat[3 : 3 + 3 * 5 * 8].view(3, 5, 8)
    ballot = cases.ballot(5, 3, 0, 0)
    aligned = native.majority(payloads.clone(), ballot, Vote().tally)
    assert torch.equal(native.majority(payloads, ballot, Vote().tally), aligned)
    assert torch.equal(torch_ops.majority(payloads, ballot, Vote().tally), aligned)


@many
@given(u=cases.updates(), codec=st.sampled_from([None, *LEVELS[:3]]))
def test_the_next_momentum_is_written_beside_the_payload(u: UpdateVector, codec: Levels | None) -> None:
    written = []
    for body in (native, torch_ops):
        room = [None if part.m is None else torch.zeros(part.m.shape, dtype=part.m.dtype) for part in u.parts]
        parts = [
            part._replace(next_m=next_m, next_beta=0.99, next_gain=1 - 0.99)
            for part, next_m in zip(u.parts, room, strict=True)
        ]
        asked = UpdateVector(parts, u.layout, u.dtype, u.device)
        encoded = body.encode_levels(asked, 1, codec.quantiser) if codec else body.encode_signs(asked, 1, abstain=False)
        written.append((encoded.payload, room))
    assert torch.equal(written[0][0], written[1][0])
    for part, mine, theirs in zip(u.parts, written[0][1], written[1][1], strict=True):
        if mine is not None and theirs is not None:
            assert same_bits(mine, theirs)
            assert part.g is None or mine.numel() < 300 or bool(mine.any())
