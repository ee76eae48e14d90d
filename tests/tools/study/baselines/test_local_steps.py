"""Methods whose workers step by themselves: against their papers with torch's AdamW inside, and by their bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
import torch

from lioncub.errors import ConfigError
from lioncub.tools.study.baselines import DiLoCo, SignMomentum
from lioncub.tools.study.baselines.formats import Float4, codes, format_of
from lioncub.tools.study.errors import DivergedError
from lioncub.tools.study.method import Method
from tests.support.local_adamw import BETAS, DECAY, Workers, gradients_at, rate
from tests.support.method_steps import check_repeatable, flat, normal, step, zeros


@dataclass(frozen=True)
class Row:
    """A method that exchanges every 4 steps, and its bits per parameter of one exchange, up and down for n workers."""

    make: Callable[..., Method]
    bits_up: float
    bits_down: Callable[[int], float]
    overhead: float = 0.0
    lr: float = 0.01


MATRIX, BIAS = (200, 100), (50,)
NUMEL = 200 * 100 + 50
SCALES = (2 * 32 + 8) / NUMEL
EVERY = 4
METHODS = {
    "DiLoCo": Row(partial(DiLoCo, every=EVERY), 32, lambda n: 32),
    "DiLoCo, 4 bits": Row(partial(DiLoCo, every=EVERY, up="float4", down="float4"), 4, lambda n: 4, SCALES),
    "averages": Row(partial(DiLoCo, every=EVERY, outer_lr=1.0, outer_momentum=0.0), 32, lambda n: 32, lr=0.05),
    "sign momentum": Row(partial(SignMomentum, every=EVERY, outer_lr=4.0), 32, lambda n: 32, lr=0.05),
}
ROWS = pytest.mark.parametrize("row", METHODS.values(), ids=METHODS)


# ---- every method --------------------------------------------------------------------------------------------------


@ROWS
@pytest.mark.parametrize("workers", [1, 3])
def test_bits_are_the_papers_and_only_when_an_exchange_is_due(row: Row, workers: int) -> None:
    method = row.make(zeros(MATRIX, BIAS), workers, weight_decay=0.0)
    for t in range(2 * EVERY + 2):
        gradients = [normal(10 * t + worker, MATRIX, BIAS) for worker in range(workers)]
        sent, came_back = step(method, gradients, 0.01, last=t == 2 * EVERY + 1)
        if (t + 1) % EVERY and t != 2 * EVERY + 1:
            assert (sent, came_back) == ([0] * workers, 0)
        else:
            for num_bytes in sent:
                assert row.bits_up <= 8 * num_bytes / NUMEL <= row.bits_up + row.overhead
            figure = row.bits_down(workers)
            assert (
                figure <= 8 * came_back / NUMEL <= figure + max(row.bits_down(workers) / row.bits_up, 1) * row.overhead
            )


@ROWS
def test_workers_drift_apart_between_exchanges_and_params_stay(row: Row) -> None:
    method = row.make(normal(0), 3, weight_decay=0.1)
    assert method.weights is not None
    for t in range(EVERY):
        assert torch.equal(flat(method.params), flat(normal(0)))
        first, *others = method.weights
        assert [torch.equal(flat(own), flat(first)) for own in others] == [t == 0] * 2
        step(method, gradients_at(t, 3), 0.01)
    assert not torch.equal(flat(method.params), flat(normal(0)))
    assert all(torch.equal(flat(own), flat(method.params)) for own in method.weights)


@ROWS
def test_a_runs_last_step_exchanges(row: Row) -> None:
    method = row.make(normal(0), 2, weight_decay=0.1)
    step(method, gradients_at(0, 2), 0.01, last=True)
    assert not torch.equal(flat(method.params), flat(normal(0)))


@ROWS
def test_same_seed_same_bits_and_no_gradient_is_changed(row: Row) -> None:
    check_repeatable(lambda: row.make(normal(0), 3, weight_decay=0.1, seed=5), gradients_at)


@ROWS
def test_it_learns(row: Row) -> None:
    """min ½‖y - c‖² from noisy gradients at every worker's own weights, with a rate that falls to zero."""
    target = normal(7)
    method = row.make(zeros(), 4, weight_decay=0.0)
    assert method.weights is not None
    for t in range(300):
        gradients = [
            [y - c + 0.2 * noise for y, c, noise in zip(own, target, normal(1000 + 4 * t + i), strict=True)]
            for i, own in enumerate(method.weights)
        ]
        step(method, gradients, row.lr * (1 - t / 300), last=t == 299)
    left = (flat(method.params) - flat(target)).square().sum() / flat(target).square().sum()
    assert left < (0.05 if isinstance(method, SignMomentum) else 0.01), "a momentum of 50 exchanges swings longer"


# ---- DiLoCo and averages -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [1, 3])
def test_diloco_is_the_papers(every: int) -> None:
    method = DiLoCo(normal(1), 3, weight_decay=DECAY, betas=BETAS, every=every)
    workers, x, m = Workers(normal(1), 3), flat(normal(1)), torch.zeros(method.numel)
    for t in range(10):
        step(method, gradients_at(t, 3), rate(t), last=t == 9)
        workers.step(gradients_at(t, 3), rate(t))
        if (t + 1) % every == 0 or t == 9:
            d = (x - workers.flat()).mean(0)
            m = 0.9 * m + d
            x = x - 0.7 * (d + 0.9 * m)
            workers.start_from(x)
        torch.testing.assert_close(flat(method.params), x, rtol=1e-5, atol=1e-5)
        assert method.weights is not None
        for own, y in zip(method.weights, workers.flat(), strict=True):
            torch.testing.assert_close(flat(own), y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("every", [1, 4])
def test_with_an_outer_rate_of_1_and_no_momentum_weights_are_averaged(every: int) -> None:
    method = DiLoCo(normal(1), 3, weight_decay=DECAY, betas=BETAS, every=every, outer_lr=1.0, outer_momentum=0.0)
    workers = Workers(normal(1), 3)
    for t in range(8):
        step(method, gradients_at(t, 3), rate(t))
        workers.step(gradients_at(t, 3), rate(t))
        if (t + 1) % every == 0:
            mean = workers.flat().mean(0)
            workers.start_from(mean)
            torch.testing.assert_close(flat(method.params), mean, rtol=1e-5, atol=1e-5)


def test_weights_that_are_not_finite_are_an_error() -> None:
    method = DiLoCo(zeros((2,)), 1, weight_decay=0.0, every=1)
    with pytest.raises(DivergedError, match="step 0: a weight of worker 0"):
        step(method, [[torch.tensor([1.0, float("nan")])]])


def test_an_exchange_after_no_step_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"DiLoCo\(every=0\)"):
        DiLoCo(zeros(), 2, weight_decay=0.0, every=0)


# ---- sign momentum -------------------------------------------------------------------------------------------------


def test_sign_momentum_is_the_papers() -> None:
    method = SignMomentum(normal(1), 3, weight_decay=DECAY, betas=BETAS, every=3, outer_lr=2.0)
    workers, x, m = Workers(normal(1), 3), flat(normal(1)), torch.zeros(method.numel)
    for t in range(9):
        lr = rate(t)
        step(method, gradients_at(t, 3), lr)
        workers.step(gradients_at(t, 3), lr)
        if (t + 1) % 3 == 0:
            d = (x - workers.flat().mean(0)) / lr
            c, m = 0.95 * m + 0.05 * d, 0.98 * m + 0.02 * d
            x = x * (1 - DECAY * lr * 2) - 2 * lr * c.sign()
            workers.start_from(x)
        torch.testing.assert_close(flat(method.params), x, rtol=1e-5, atol=1e-5)


def test_sign_momentum_stays_where_the_rate_is_zero() -> None:
    method = SignMomentum(normal(1), 2, weight_decay=DECAY, every=1)
    step(method, gradients_at(0, 2), 0.0)
    assert torch.equal(flat(method.params), flat(normal(1)))


# ---- formats -------------------------------------------------------------------------------------------------------


def test_a_4_bit_float_is_a_sign_and_a_power_of_two() -> None:
    """All 16 codes, there and back: ±0 and ±1/64 to ±1, of a largest magnitude of 3."""
    magnitudes = torch.tensor([0, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1])
    every_value = torch.cat([magnitudes, -magnitudes])
    assert codes(every_value).tolist() == list(range(16))
    form = Float4([16])
    message = form.encode(3 * every_value)
    assert len(message) == 4 + 8
    assert torch.equal(form.decode(message), 3 * every_value)
    assert torch.equal(torch.signbit(form.decode(message)), torch.signbit(every_value))


def test_4_bit_floats_are_the_nearest() -> None:
    values = torch.linspace(-1, 1, 2001)
    grid = torch.cat([-(2.0 ** -torch.arange(7.0)), torch.zeros(1), 2.0 ** -torch.arange(7.0)])
    nearest = (values[:, None] - grid).abs().amin(1)
    decoded = Float4([2001]).decode(Float4([2001]).encode(values))
    torch.testing.assert_close((values - decoded).abs(), nearest)


def test_4_bit_floats_have_a_scale_for_each_tensor() -> None:
    form = Float4([2, 0, 3])
    vector = torch.tensor([1e-6, -5e-7, 0, 0, 0])
    assert torch.equal(form.decode(form.encode(vector)), vector)
    with pytest.raises(ConfigError, match="'float8' numbers"):
        format_of("float8", [1])  # type: ignore[arg-type]
