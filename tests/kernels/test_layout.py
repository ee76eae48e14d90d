"""Layouts of buckets, and ballots."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lioncub.kernels.layout import BLOCK, Ballot, Layout, Span


@given(st.lists(st.integers(1, 500), min_size=1, max_size=8), st.integers(1, 16))
def test_every_worker_gets_the_same_number_of_blocks(lengths: list[int], num_workers: int) -> None:
    layout = Layout(tuple(lengths), num_workers)
    assert layout.blocks % num_workers == 0
    assert layout.numel <= layout.padded_numel < layout.numel + BLOCK * num_workers
    assert list(layout.starts) == [sum(lengths[:i]) for i in range(len(lengths))]


def test_padding_is_per_bucket_and_small_at_many_workers() -> None:
    """Known mistake: padding each tensor to a multiple of n·lcm(n, 8) costs more than the tensor at large n."""
    layout = Layout((1000,) * 1000, 64)
    assert layout.padded_numel < 1.005 * layout.numel


@given(st.data())
def test_ballots_cover_everything_once(data: st.DataObject) -> None:
    lengths = tuple(data.draw(st.lists(st.integers(1, 100), min_size=1, max_size=6)))
    layout = Layout(lengths, data.draw(st.integers(1, 4)))
    voters = [tuple(sorted(data.draw(st.sets(st.integers(0, 3))))) for _ in lengths]
    ballot = Ballot.of(layout, 3, voters)
    flat = [span.voters for span in ballot.spans for _ in range(span.start, span.stop)]
    expected = [who for who, length in zip(voters, lengths, strict=True) for _ in range(length)]
    assert flat[: layout.numel] == expected
    assert len(flat) == layout.padded_numel
    start = data.draw(st.integers(0, layout.padded_numel - 1))
    stop = data.draw(st.integers(start + 1, layout.padded_numel))
    part = ballot.part(start, stop)
    assert [span.voters for span in part.spans for _ in range(span.start, span.stop)] == flat[start:stop]


@pytest.mark.parametrize(("step", "caster"), [(0, 1), (1, 4), (2, 6), (3, 1)])
def test_the_casting_voter_is_voter_t_mod_v_in_rank_order(step: int, caster: int) -> None:
    assert Span(0, 1, (1, 4, 6)).casting_voter(step) == caster
