"""The findings of a monitor, and no false alarms."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from lioncub.monitor.findings import LOSS_PATIENCE, LOSS_WARM_UP, WAIT_WARM_UP, WAIT_WINDOW, LossWatch, WaitWatch
from lioncub.stats import Stats
from tests.support.monitor_events import STATS


def losses_alarm(losses: Iterable[float]) -> list[int]:
    watch = LossWatch()
    return [step for step, loss in enumerate(losses) if watch.see(step, loss)]


def falling(num_steps: int, noise: float, seed: int = 0, floor: float = 2.0) -> list[float]:
    chance = random.Random(seed)
    return [floor + 8 * math.exp(-step / 100) + chance.gauss(0, noise) for step in range(num_steps)]


def test_a_loss_that_rises_for_long_is_named_once() -> None:
    fall = falling(400, 0.1)
    rise = [fall[-1] + 0.02 * step for step in range(300)]
    (step,) = losses_alarm(fall + rise)
    assert 400 + LOSS_PATIENCE <= step < 400 + 3 * LOSS_PATIENCE


def test_a_loss_that_jumps_up_and_stays_is_named() -> None:
    (step,) = losses_alarm(falling(200, 0.1) + [9.0] * 200)
    assert 200 + LOSS_PATIENCE <= step <= 200 + LOSS_PATIENCE + 25


@pytest.mark.parametrize("growth", [1.01, 1.04, 1.05, 1.1, 1.2, 1.5, 2.0])
def test_a_loss_that_grows_ever_faster_is_named(growth: float) -> None:
    fall = falling(200, 0.1)
    rise = [fall[-1] * growth**step for step in range(1, 400)]
    assert len(losses_alarm(fall + [loss for loss in rise if loss < 1e300])) == 1


def test_a_loss_that_jumps_about_far_above_its_best_is_named() -> None:
    chance = random.Random(1)
    assert len(losses_alarm(falling(200, 0.1) + [chance.uniform(5, 50) for _ in range(200)])) == 1


def test_a_second_divergence_after_a_recovery_is_named_again() -> None:
    calm, high = falling(300, 0.05)[200:], [9.0] * 120
    assert len(losses_alarm([*falling(300, 0.05), *high, *calm, *calm, *high])) == 2


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_named_at_once_and_once(bad: float) -> None:
    assert losses_alarm([5.0, 4.0, bad, bad, 3.0, bad]) == [2]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "losses",
    [
        lambda seed: falling(3000, 1.0, seed),
        lambda seed: falling(3000, 0.02, seed, floor=0.05),
        lambda seed: [2 - loss for loss in reversed(falling(600, 0.0))],  # below zero, still falling
        lambda seed: [x * math.exp(random.Random(seed + i).gauss(0, 1)) for i, x in enumerate(falling(2000, 0.0))],
        lambda seed: [11.0] * 2000,
    ],
    ids=["very noisy", "near zero", "negative", "heavy tails", "flat"],
)
def test_losses_that_only_look_bad_do_not_alarm(losses: Any, seed: int) -> None:
    assert losses_alarm(losses(seed)) == []


def test_spikes_and_the_first_steps_do_not_alarm() -> None:
    fall = falling(600, 0.1)
    assert losses_alarm([11, 30, 80, 60, 40, 20, *fall]) == [], "the very first steps"
    warm_up = [10 + 6 * math.sin(math.pi * step / 80) for step in range(80)]
    assert losses_alarm(warm_up + fall) == [], "warm-up makes the loss rise, then it falls"
    assert losses_alarm([*fall[:300], 1e6, *fall[300:400], *[50.0] * 20, *fall[400:]]) == [], "spikes that pass"
    assert losses_alarm([1.0] * (LOSS_WARM_UP // 2) + [5.0] * (LOSS_WARM_UP // 2)) == [], "too early to say"


def waits_alarm(shares: Iterable[float], stats: Stats = STATS) -> list[int]:
    watch = WaitWatch()
    return [step for step, share in enumerate(shares) if watch.see(step, 2.0, replace(stats, seconds_waited=2 * share))]


def test_waiting_is_named_once_until_it_has_passed() -> None:
    assert waits_alarm([0.6] * 100) == [WAIT_WARM_UP + WAIT_WINDOW - 1]
    assert waits_alarm([0.6, 0.45] * 200) == [WAIT_WARM_UP + WAIT_WINDOW - 1], "around the threshold: once"
    assert len(waits_alarm([0.6] * 50 + [0.2] * 25 + [0.6] * 50)) == 1, "a short pause is not the end of it"
    assert len(waits_alarm([0.6] * 50 + [0.2] * 100 + [0.6] * 50)) == 2


def test_waiting_now_and_then_or_in_the_first_steps_does_not_alarm() -> None:
    assert waits_alarm([0.99] * WAIT_WARM_UP + [0.3] * 100) == []
    assert waits_alarm([0.9, 0.3, 0.3] * 50) == []
    assert waits_alarm([0.49] * 100) == []
    assert waits_alarm([0.9] * (WAIT_WARM_UP + WAIT_WINDOW - 1)) == []
    alone = replace(STATS, bytes_sent=0, bytes_received=0)
    assert waits_alarm([0.9] * 100, alone) == [], "a world of one waits for nobody"
