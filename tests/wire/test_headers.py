"""Headers: what they carry, and what damage to them does."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lioncub.errors import (
    AgreementError,
    GradientChangedError,
    QuorumError,
    ReplicasDifferError,
    SparseGradientError,
    WireError,
)
from lioncub.wire.consensus import check, odd_ones_out
from lioncub.wire.headers import Flags, Header

HALF, WORD = st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1)
HEADER = Header(rank=0, bucket=1, step=2, plan=3, hyper=4, fingerprint=5, present=(True, False, True))


@given(HALF, HALF, st.integers(0, 2**64 - 1), WORD, WORD, WORD, st.lists(st.booleans(), max_size=200), HALF)
def test_headers_round_trip(
    rank: int, bucket: int, step: int, plan: int, hyper: int, fingerprint: int, present: list[bool], agreement: int
) -> None:
    header = Header(rank, bucket, step, plan, hyper, fingerprint, tuple(present), Flags.NOT_FINITE, agreement)
    packed = header.pack()
    assert packed.numel() == Header.num_bytes(len(present))
    assert packed.numel() % 8 == 0, "payloads behind it stay aligned"
    assert Header.unpack(packed) == header


@given(st.integers(0, 8 * Header.num_bytes(3) - 1))
def test_one_flipped_bit_is_noticed(bit: int) -> None:
    packed = HEADER.pack()
    packed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(WireError):
        Header.unpack(packed)


@given(st.binary(max_size=80))
def test_random_bytes_are_a_typed_error(data: bytes) -> None:
    with pytest.raises(WireError):
        Header.unpack(torch.tensor(list(data), dtype=torch.uint8))


def headers(**change: object) -> list[Header]:
    """Four workers, of which number 2 differs."""
    four = [replace(HEADER, rank=rank) for rank in range(4)]
    four[2] = replace(four[2], **change)  # type: ignore[arg-type]
    return four


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"version": 9}, AgreementError),
        ({"plan": 9}, AgreementError),
        ({"bucket": 9}, WireError),
        ({"step": 9}, AgreementError),
        ({"hyper": 9}, AgreementError),
        ({"flags": Flags.ABANDONED}, AgreementError),
        ({"flags": Flags.REPLANNING}, AgreementError),
        ({"fingerprint": 9}, ReplicasDifferError),
        ({"flags": Flags.SPARSE}, SparseGradientError),
        ({"flags": Flags.CHANGED}, GradientChangedError),
    ],
)
def test_the_odd_worker_is_named(change: dict[str, object], error: type[Exception]) -> None:
    check(headers(), quorum=4, what="w")
    with pytest.raises(error, match="worker 2"):
        check(headers(**change), quorum=1, what="w")


def test_quorum() -> None:
    silent = headers(flags=Flags.NOT_FINITE)
    check(silent, quorum=3, what="w")
    with pytest.raises(QuorumError, match="3 of 4 workers"):
        check(silent, quorum=4, what="w")


def test_a_draw_is_decided_by_the_first_worker() -> None:
    assert odd_ones_out([1, 2]) == [1]
    assert odd_ones_out([1, 2, 2]) == [0]
    assert odd_ones_out([5, 5, 5]) == []
