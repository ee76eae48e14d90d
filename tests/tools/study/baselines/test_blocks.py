"""SparseLoCo and DeMo, which send the largest entries of blocks: against slow transcriptions of their papers."""

from __future__ import annotations

import copy
import math
from functools import partial

import pytest
import torch
from torch import Tensor

from lioncub.tools.study.baselines import DeMo, SparseLoCo
from lioncub.tools.study.baselines.blocks import Blocks, side
from lioncub.tools.study.baselines.demo import dct, transformed
from lioncub.tools.study.baselines.sparse_loco import quantised
from tests.support.method_steps import check_repeatable, flat, normal, step, zeros

SHAPES = ((128, 70), (65,), (3, 2, 2), ())
BLOCKS = ((64, 35), (13, 1), (3, 4), (1, 1))
"""The largest divisors that are at most 64, of the sides of each tensor as a matrix."""


def gradients_at(t: int, workers: int) -> list[list[Tensor]]:
    return [normal(100 * t + worker, *SHAPES) for worker in range(workers)]


def blocks_of(index: int, tensor: Tensor) -> list[Tensor]:
    """Views of the blocks of a tensor."""
    a, b = BLOCKS[index]
    matrix = tensor.view(len(tensor) if tensor.dim() else 1, -1)
    rows, columns = matrix.shape
    return [matrix[i : i + a, j : j + b] for i in range(0, rows, a) for j in range(0, columns, b)]


def top(block: Tensor, count: int) -> Tensor:
    """Whether an entry is among the largest of its block."""
    kept = torch.zeros(block.numel(), dtype=torch.bool)
    kept[block.abs().reshape(-1).argsort(descending=True)[:count]] = True
    return kept.view(block.shape)


# ---- blocks --------------------------------------------------------------------------------------------------------


def test_blocks_are_what_a_matrix_is_cut_into() -> None:
    params = normal(1, *SHAPES)
    blocks = Blocks(params, 32)
    cut = blocks.cut(flat(params))
    expected = [block.reshape(-1) for i, param in enumerate(params) for block in blocks_of(i, param)]
    assert torch.equal(cut, torch.cat(expected))
    assert torch.equal(blocks.joined(cut), flat(params))
    assert [side(length) for length in (1, 64, 65, 67, 192, 200)] == [1, 64, 13, 1, 64, 50]


def test_the_largest_entries_of_every_block_and_their_places_as_bytes() -> None:
    params = normal(1, *SHAPES)
    blocks = Blocks(params, 10)
    cut = blocks.cut(flat(params))
    places = blocks.largest(cut)
    kept = torch.zeros(blocks.numel, dtype=torch.bool)
    kept[places] = True
    expected = [top(block, 10).reshape(-1) for i, param in enumerate(params) for block in blocks_of(i, param)]
    assert torch.equal(kept, torch.cat(expected))
    message = blocks.pack_places(places)
    assert len(message) == blocks.places_bytes
    assert torch.equal(blocks.unpack_places(message), places)
    assert blocks.num_kept == len(places) == sum(blocks.kept_by_tensor)


# ---- SparseLoCo ----------------------------------------------------------------------------------------------------


def test_sparse_loco_is_the_papers() -> None:
    method = SparseLoCo(normal(1, *SHAPES), 2, weight_decay=0.3, every=2, top=20)
    x = normal(1, *SHAPES)
    y = [copy.deepcopy(x) for _ in range(2)]
    inner = [torch.optim.AdamW(own, lr=0.01, betas=(0.9, 0.95), weight_decay=0.3) for own in y]
    errors = [zeros(*SHAPES) for _ in range(2)]
    for t in range(6):
        gradients = gradients_at(t, 2)
        step(method, gradients, 0.01)
        for own, optimizer, gradient in zip(y, inner, gradients, strict=True):
            for weight, g in zip(own, gradient, strict=True):
                weight.grad = g
            optimizer.step()
        if t % 2 == 0:
            continue
        for index, param in enumerate(x):
            said = [compressed(index, errors[i][index], param - y[i][index]) for i in range(2)]
            param -= (said[0] + said[1]) / 2
            for own in y:
                own[index].copy_(param)
        torch.testing.assert_close(flat(method.params), flat(x), rtol=1e-4, atol=1e-5)


def compressed(index: int, error: Tensor, difference: Tensor) -> Tensor:
    """What one worker says of a tensor; the error keeps the rest."""
    error.mul_(0.95).add_(difference)
    kept = torch.zeros(error.shape, dtype=torch.bool)
    for block, chosen in zip(blocks_of(index, error), blocks_of(index, kept), strict=True):
        chosen.copy_(top(block, 20))
    entries = error[kept]
    centred = entries - entries.mean()
    sigma = math.sqrt(float(centred.square().sum()) / max(len(entries) - 1, 1))
    codes = [min(max(round(value / (1.5 * sigma) + 2), 0), 3) if sigma else 2 for value in centred.tolist()]
    values = {code: entries[torch.tensor(codes) == code].mean() for code in set(codes)}
    said = torch.zeros(error.shape)
    said[kept] = torch.stack([values[code] for code in codes])
    error -= said
    return said


def test_sparse_loco_loses_nothing() -> None:
    """Without forgetting, what was said and what is kept are all that workers moved by."""
    method = SparseLoCo(normal(1, *SHAPES), 2, weight_decay=0.0, every=2, feedback=1.0, top=20)
    assert method.weights is not None
    meant = torch.zeros(method.numel)
    for t in range(8):
        x = flat(method.params)
        others = copy.deepcopy(method)
        others.every = 100
        step(others, gradients_at(t, 2), 0.01)
        assert others.weights is not None
        if t % 2:
            meant += torch.stack([x - flat(own) for own in others.weights]).mean(0)
        step(method, gradients_at(t, 2), 0.01)
    kept = method.blocks.joined(torch.stack(method.errors).mean(0))
    torch.testing.assert_close(flat(normal(1, *SHAPES)) - flat(method.params) + kept, meant, rtol=1e-4, atol=1e-5)


def test_sparse_locos_bytes() -> None:
    method = SparseLoCo(zeros((128, 64), (256,)), 3, weight_decay=0.0, every=2)
    gradients = [normal(worker, (128, 64), (256,)) for worker in range(3)]
    assert step(method, gradients, 0.01) == ([0, 0, 0], 0)
    entries = 2 * 64 + 4 * 64
    places = 2 * 64 * 12 // 8 + 4 * 64 * 6 // 8
    num_bytes = places + entries * 2 // 8 + 2 * 4 * 4
    assert step(method, gradients, 0.01) == ([num_bytes] * 3, 3 * num_bytes)


def test_2_bits_of_equal_entries_and_of_one_are_exact() -> None:
    for part in (torch.full((5,), 3.0), torch.tensor([-2.0]), torch.zeros(4)):
        codes, values = quantised(part)
        assert torch.equal(values[codes], part)


# ---- DeMo ----------------------------------------------------------------------------------------------------------


def cosines(block: Tensor) -> Tensor:
    """The orthonormal DCT-II by its sums, rows and columns."""
    return matrix_of_cosines(len(block)) @ block.double() @ matrix_of_cosines(block.shape[1]).T


def matrix_of_cosines(n: int) -> Tensor:
    rows = [[math.cos(math.pi * (2 * j + 1) * k / (2 * n)) for j in range(n)] for k in range(n)]
    scale = torch.tensor([math.sqrt((1 if k == 0 else 2) / n) for k in range(n)], dtype=torch.float64)
    return torch.tensor(rows, dtype=torch.float64) * scale[:, None]


def inverse_cosines(coefficients: Tensor) -> Tensor:
    """By solving for what has these coefficients."""
    left = torch.linalg.solve(matrix_of_cosines(len(coefficients)), coefficients.double())
    solved: Tensor = torch.linalg.solve(matrix_of_cosines(coefficients.shape[1]), left.T)
    return solved.T


@pytest.mark.parametrize("length", [1, 2, 13, 35, 64])
def test_the_dct_has_an_inverse(length: int) -> None:
    torch.testing.assert_close(dct(length).double(), matrix_of_cosines(length), rtol=0, atol=1e-6)
    torch.testing.assert_close(dct(length) @ dct(length).T, torch.eye(length), rtol=0, atol=1e-5)


def test_the_dct_of_blocks_and_back() -> None:
    params = normal(1, *SHAPES)
    blocks = Blocks(params, 32)
    cut = blocks.cut(flat(params))
    there = transformed(blocks, cut)
    expected = [cosines(block).reshape(-1) for i, param in enumerate(params) for block in blocks_of(i, param)]
    torch.testing.assert_close(there, torch.cat(expected).float(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(transformed(blocks, there, inverse=True), cut, rtol=1e-4, atol=1e-5)


def test_demo_is_the_papers() -> None:
    method = DeMo(normal(1, *SHAPES), 2, weight_decay=0.3, top=20)
    x, m = normal(1, *SHAPES), [zeros(*SHAPES) for _ in range(2)]
    for t in range(4):
        lr = 0.1 / (t + 1)
        gradients = gradients_at(t, 2)
        step(method, gradients, lr)
        for index, param in enumerate(x):
            for own, gradient in zip(m, gradients, strict=True):
                own[index].mul_(0.999).add_(lr * gradient[index])
            parts = [blocks_of(index, own[index]) for own in m]
            for place, moved in enumerate(blocks_of(index, param)):
                said = [sent(part[place]) for part in parts]
                senders = sum((q != 0).double() for q in said)
                q = (said[0] + said[1]) / torch.as_tensor(senders).clamp(min=1)
                moved.mul_(1 - lr * 0.3).sub_(lr * inverse_cosines(q).sign().float())
        same = torch.isclose(flat(method.params), flat(x), rtol=1e-4, atol=1e-5)
        assert same.float().mean() > 0.999, "a sign of what is zero but for rounding may differ"


def sent(block: Tensor) -> Tensor:
    """The coefficients that one worker sends of a block of its momentum, which loses them."""
    q = cosines(block)
    q = torch.where(top(q, 20), q, 0.0)
    block -= inverse_cosines(q).float()
    return q


def test_demo_loses_nothing() -> None:
    """Momentum that does not fade is all gradients, less what was sent."""
    method = DeMo(zeros(*SHAPES), 1, weight_decay=0.0, beta=1.0, top=20)
    total, told = torch.zeros(method.numel), torch.zeros(method.numel)
    for t in range(6):
        (gradient,) = gradients_at(t, 1)
        method.begin(0.1)
        method.send(0, gradient)
        (message,) = method.messages
        coefficients = torch.zeros(method.numel)
        at = method.blocks.places_bytes
        values = torch.frombuffer(bytearray(message[at:]), dtype=torch.float32)
        coefficients[method.blocks.unpack_places(message)] = values
        told += method.blocks.joined(transformed(method.blocks, coefficients, inverse=True))
        method.move(0.1)
        total += 0.1 * flat(gradient)
    torch.testing.assert_close(method.blocks.joined(method.m[0]) + told, total, rtol=1e-4, atol=1e-5)


def test_demos_bytes() -> None:
    method = DeMo(zeros((128, 64), (256,)), 3, weight_decay=0.0)
    gradients = [normal(worker, (128, 64), (256,)) for worker in range(3)]
    num_bytes = (2 * 32 * 12 + 4 * 32 * 6) // 8 + 4 * (2 + 4) * 32
    assert step(method, gradients, 0.01) == ([num_bytes] * 3, 3 * num_bytes)


@pytest.mark.parametrize("make", [DeMo, partial(SparseLoCo, every=1)], ids=["DeMo", "SparseLoCo"])
def test_same_seed_same_bits_and_no_gradient_is_changed(make: type[DeMo]) -> None:
    check_repeatable(lambda: make(normal(0, *SHAPES), 3, weight_decay=0.1, seed=5), gradients_at)
