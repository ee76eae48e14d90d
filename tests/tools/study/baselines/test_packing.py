"""What the baselines send, as bytes and back."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lioncub import reference
from lioncub.tools.study.baselines import packing, sparse

many = settings(max_examples=50, deadline=None)


@many
@given(st.data(), st.integers(1, 12))
def test_integers_come_back_and_take_their_bits(data: st.DataObject, bits: int) -> None:
    values = data.draw(st.lists(st.integers(0, 2**bits - 1), max_size=100))
    message = packing.pack(np.array(values, np.int32), bits)
    assert len(message) == packing.packed_bytes(len(values), bits) == (len(values) * bits + 7) // 8
    assert packing.unpack(message, len(values), bits).tolist() == values


@many
@given(st.lists(st.integers(-1, 1), max_size=100))
def test_trits_come_back_five_to_a_byte(trits: list[int]) -> None:
    message = packing.pack_trits(np.array(trits, np.int8))
    assert len(message) == packing.trit_bytes(len(trits)) == (len(trits) + 4) // 5
    assert packing.unpack_trits(message, len(trits)).tolist() == trits


def test_packing_by_hand() -> None:
    assert packing.pack(np.array([1, 0, 1, 1]), 1) == bytes([0b1101])
    assert packing.pack(np.array([5, 2, 7]), 3) == bytes([0b11_010_101, 0b1])
    assert packing.pack_trits(np.array([-1, 0, 1, -1, 1, 1])) == bytes([0 + 3 + 2 * 9 + 0 + 2 * 81, 2])


@many
@given(st.lists(st.floats(width=32, allow_nan=False), max_size=30))
def test_floats_come_back(values: list[float]) -> None:
    message = packing.pack_floats(torch.tensor(values))
    assert len(message) == 4 * len(values)
    assert packing.unpack_floats(message).tolist() == values


@many
@given(st.lists(st.sampled_from([-2.0, -1e-30, -0.0, 0.0, 1e-30, 3.0]), min_size=1, max_size=50), st.integers(0, 9))
def test_signs_are_the_librarys(values: list[float], step: int) -> None:
    x = torch.tensor(values)
    message = packing.pack_signs(x, step)
    assert len(message) == (len(values) + 7) // 8
    assert packing.unpack_signs(message, len(values)).tolist() == reference.signs(x, step, "alternate").tolist()


@many
@given(st.integers(1, 3000), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.001, 0.04, 0.3, 0.9, 1.0]))
def test_sparse_vectors_come_back_in_few_bytes(numel: int, seed: int, density: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    vector = torch.randn(numel, generator=generator) * (torch.rand(numel, generator=generator) < density)
    message = sparse.encode(vector)
    assert torch.equal(sparse.decode(message, numel), vector)
    kept = int(vector.count_nonzero())
    assert len(message) <= min(1 + 4 * numel, 5 + 5 * kept + numel / 255)


def test_a_sparse_vector_by_hand() -> None:
    vector = torch.zeros(1000)
    vector[[2, 3, 2 + 257]] = torch.tensor([1.0, -2.0, 0.5])  # after 2, 0 and 255 zeros
    values = np.array([1, -2, 0.5], np.float32).tobytes()
    assert sparse.encode(vector) == bytes([1, 4, 0, 0, 0, 2, 0, 255, 0]) + values
    assert sparse.encode(torch.ones(2)) == bytes([0]) + np.ones(2, np.float32).tobytes(), "dense is shorter"


def test_the_largest() -> None:
    vector = torch.tensor([0.5, -3.0, 0.0, 2.0, -1.0])
    assert sorted(sparse.largest(vector, 2).tolist()) == [1, 3]
    assert sorted(sparse.largest(vector, 5).tolist()) == [0, 1, 2, 3, 4]
    assert len(sparse.largest(torch.zeros(10), 3)) == 3, "equal magnitudes are not all sent"
    assert [sparse.num_kept(numel, 0.04) for numel in (1, 5, 100, 300_000)] == [1, 1, 4, 12_000]
