"""Codecs without a network: sizes on the wire, bounds, known mistakes of other implementations."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lioncub import Dense, Levels, Mean, Vote, reference
from lioncub.codecs.levels import LevelSums
from lioncub.errors import ConfigError
from lioncub.kernels import Cut, UpdateVector, torch_ops
from lioncub.kernels.bits import count_bits, pack_bits, pack_bits_anywhere, unpack_bits, unpack_bits_anywhere
from lioncub.kernels.layout import BLOCK, Ballot, Layout, Span
from tests.table import ROWS, Row

EVERYBODY = tuple(range(5))


def combined(row: Row, u: Tensor, step: int, voters: tuple[int, ...]) -> Tensor:
    """The direction that ``row.codec`` gives workers' ``u [n, numel]`` of one tensor."""
    layout = Layout((u.shape[1],), len(u))
    padded = torch.zeros(len(u), layout.padded_numel)
    padded[:, : u.shape[1]] = u
    payloads = torch.stack([row.codec.encode(values, layout, step) for values in padded])
    ballot = Ballot(step, (Span(0, layout.padded_numel, voters),))
    return row.codec.decode(row.codec.combine(payloads, ballot), ballot)[: u.shape[1]]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_codec_equals_reference(row: Row, data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 9))
    numel = data.draw(st.sampled_from([1, 7, 8, 9, 63, 64, 65, 200]))
    step = data.draw(st.integers(0, 1000))
    voters = tuple(sorted(data.draw(st.sets(st.integers(0, n - 1), min_size=1))))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**32)))
    u = torch.randn(n, numel, generator=generator) ** 3 * 10 ** data.draw(st.integers(-30, 10))
    u[torch.rand(n, numel, generator=generator) < 0.2] = 0.0
    u[torch.rand(n, numel, generator=generator) < 0.1] = -0.0
    assert torch.equal(combined(row, u, step, voters), row.combine(u, step, voters))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_bits_on_the_wire(row: Row) -> None:
    assert row.codec.up_block_bytes * 8 == row.bits_up * BLOCK
    for n in (2, 3, 4, 7, 8, 64):
        assert row.codec.down_block_bytes(n) * 8 == row.bits_down(n) * BLOCK
    layout = Layout((1_000_000, 3, 77), 4)
    payload = row.codec.encode(torch.randn(layout.padded_numel), layout, 0)
    assert payload.dtype == torch.uint8
    assert payload.numel() * 8 <= row.bits_up * layout.numel * 1.001
    assert len(payload) == layout.blocks


def test_mean_sends_back_log2_of_n_plus_1() -> None:
    assert [Mean().down_block_bytes(n) // 8 for n in (1, 2, 3, 4, 7, 8, 15, 16)] == [1, 2, 2, 3, 3, 4, 4, 5]


def test_zero_is_not_a_vote_for_minus() -> None:
    """Known mistake: with ``u > 0`` as the bit, an unused embedding row drifts by -lr every step."""
    total = sum(combined(ROWS[0], torch.zeros(5, 9), step, EVERYBODY) for step in range(10))
    assert torch.equal(torch.as_tensor(total), torch.zeros(9))


def test_negative_zero_is_zero() -> None:
    u = torch.full((5, 4), -0.0)
    assert torch.equal(combined(ROWS[0], u, 0, EVERYBODY), combined(ROWS[0], u.abs(), 0, EVERYBODY))


def test_scale_zero_and_tiny_numbers() -> None:
    for row in ROWS:
        tiny = torch.full((3, 5), 1e-45)  # the mean may underflow, the sign may not be lost
        tiny[:, 1] *= -1
        direction = combined(row, tiny, 0, (0, 1, 2))
        assert not direction.isnan().any()
        if row.bits_up > 1 and row.bits_down(3) == 1:
            assert direction.tolist() == [1, -1, 1, 1, 1]


@pytest.mark.parametrize(("bits", "n"), [(2, 1), (4, 3), (4, 7), (8, 100), (8, 127)])
def test_summed_fields_never_carry(bits: int, n: int) -> None:
    """Known mistake: carries of summed packed bytes reach neighbours. Extremes on all workers, up to the largest n."""
    codec = LevelSums(bits, "linf", n)
    layout = Layout((64,), n)
    u = torch.zeros(layout.padded_numel)
    u[:64] = torch.tensor([100.0, -100.0] * 32)
    total = torch.stack([codec.encode(u, layout, 0)] * n).sum(0, dtype=torch.int64)
    assert int(total.max()) <= 255
    assert codec.decode(total.to(torch.uint8), Ballot(0, ()))[:64].tolist() == [1.0, -1.0] * 32


def test_dense_values_are_added_in_rank_order() -> None:
    """(1e8 - 1e8) + 1 = 1, but in float32 (1 - 1e8) + 1e8 = 0: every other order would end in other bits."""
    layout, codec = Layout((64,), 1), Dense()
    payloads = torch.stack([codec.encode(torch.full((64,), value), layout, 0) for value in (1e8, -1e8, 1.0)])
    combined = codec.combine(payloads, Ballot.of(layout, 0, [(0, 1, 2)]))
    assert codec.values(combined).tolist() == [1.0] * 64


def test_levels_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="at most 127 workers; use more bits"):
        LevelSums(8, "l1", 128)
    with pytest.raises(ConfigError, match="at most 65535"):
        Levels(5, grid="log").check(65536)
    Levels(5, grid="log").check(65535)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Levels(1), "2 to 8"),
        (lambda: Levels(9), "2 to 8"),
        (lambda: Levels(6, grid="log"), "2 to 5"),
        (lambda: Levels(6, grid="float"), "2 to 5"),
        (lambda: Levels(4, "linf", "float"), 'scale="l1"'),
        (lambda: Levels(4, "l2"), "linf"),  # type: ignore[arg-type]
        (lambda: Levels(4, "l1", "cubic"), "midtread"),  # type: ignore[arg-type]
        (lambda: Levels(2.5), "2 to 8"),  # type: ignore[arg-type]
        (lambda: Vote(ties="coin"), "cast"),  # type: ignore[arg-type]
        (lambda: Vote(zeros="drop"), "abstain"),  # type: ignore[arg-type]
        (lambda: Dense(torch.float16), "bfloat16"),
    ],
)
def test_impossible_codecs_raise_at_construction(make: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make()  # type: ignore[operator]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 40), st.integers(0, 2**32))
def test_packing_is_lossless(num_bytes: int, seed: int) -> None:
    bits = torch.rand(num_bytes * 8, generator=torch.Generator().manual_seed(seed)) < 0.5
    packed = pack_bits(bits)
    assert packed.numel() == num_bytes
    assert torch.equal(unpack_bits(packed).bool(), bits)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 64), st.integers(0, 64), st.integers(0, 2**32))
def test_bits_are_counted(a: int, b: int, seed: int) -> None:
    bits = torch.rand(64, generator=torch.Generator().manual_seed(seed)) < 0.5
    start, stop = min(a, b), max(a, b)
    assert count_bits(pack_bits(bits), start, stop) == int(bits[start:stop].sum())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_agreement_counts_equal_signs(row: Row) -> None:
    torch.manual_seed(1)
    u = torch.randn(3, 192) * (torch.rand(3, 192) < 0.7)
    layout = Layout((192,), 3)
    payloads = torch.stack([row.codec.encode(values, layout, 1) for values in u])
    ballot = Ballot(1, (Span(0, 192, (0, 1, 2)),))
    outcome = row.codec.combine(payloads, ballot)
    for payload in payloads:
        expected = row.codec.votes(payload) == torch.sign(row.codec.decode(outcome, ballot))
        for cut in (Cut(0, 192, 3), Cut(5, 70, 3), Cut(64, 191, 3)):
            matches = row.codec.count_matches(payload, outcome, ballot, [cut])
            assert matches == expected[cut.start : cut.stop].sum()
        assert 0.3 < expected.float().mean() <= 1


def test_torch_body_of_packing_equals_the_numpy_one() -> None:
    bits = torch.rand(512) < 0.5
    packed = pack_bits(bits)
    assert torch.equal(pack_bits_anywhere(bits), packed)
    assert torch.equal(unpack_bits_anywhere(packed), unpack_bits(packed))


def test_zeros_alternate_by_coordinate_inside_their_tensor() -> None:
    layout = Layout((5, 1, 6), 1)
    for step in (0, 1):
        bits = unpack_bits(Vote().encode(torch.zeros(64), layout, step))[:12]
        starts = [0] * 5 + [5] + [6] * 6
        assert bits.tolist() == [(element - start + step) % 2 for element, start in enumerate(starts)]


def test_finite_check_survives_overflowing_sums() -> None:
    assert torch_ops.all_finite(torch.full((100,), 3e38))
    assert not torch_ops.all_finite(torch.tensor([1.0, float("inf"), float("-inf")]))
    assert not torch_ops.all_finite(torch.tensor([1.0, float("nan")]))


def test_scale_does_not_depend_on_threads() -> None:
    u = torch.randn(300_001) ** 3
    update = UpdateVector.of(u, Layout((len(u),), 1))
    threads = torch.get_num_threads()
    units = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        units.append(torch_ops.units(update, "l1")[0].item())
    torch.set_num_threads(threads)
    assert len(set(units)) == 1
    assert units[0] == pytest.approx(reference.magnitude_scale(u, "l1").item())
