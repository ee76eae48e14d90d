"""The policy of momentum synchronisation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lioncub import MomentumSync
from lioncub.errors import ConfigError
from lioncub.momentum.policy import SAMPLE, divergence, sample

NAMED = [(name, torch.zeros(2, 2)) for name in ("embed.weight", "block.0.weight", "block.1.weight", "head.bias")]


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        (None, [True] * 4),
        ("block.*", [False, True, True, False]),
        (["embed.*", "*.bias"], [True, False, False, True]),
        (lambda name, param: "1" in name and param.dim() == 2, [False, False, True, False]),
    ],
)
def test_selection_by_pattern_and_callable(match: Any, expected: list[bool]) -> None:
    assert MomentumSync(match=match).matching(NAMED) == expected


def test_a_pattern_that_matches_nothing_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match=r"'tail' matches no parameter.*embed.weight"):
        MomentumSync(match=["embed.*", "tail"]).matching(NAMED)


def test_a_callable_that_matches_nothing_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="matches no parameter"):
        MomentumSync(match=lambda name, param: False).matching(NAMED)


@pytest.mark.parametrize("numel", [0, 1, 5, 64, 1000])
@pytest.mark.parametrize("every", [1, 3, 64])
def test_spread_visits_every_element_once_a_period_without_a_burst(numel: int, every: int) -> None:
    windows = [MomentumSync(every=every).window(step, numel) for step in range(every)]
    assert [i for start, stop in windows for i in range(start, stop)] == list(range(numel))
    assert max(stop - start for start, stop in windows) <= -(-numel // every)


def test_without_spread_all_at_the_end_of_the_period() -> None:
    windows = [MomentumSync(every=3, spread=False).window(step, 10) for step in range(6)]
    assert windows == [(0, 0), (0, 0), (0, 10)] * 2


def test_budget_takes_the_most_divergent_that_fit() -> None:
    policy = MomentumSync(every=64, budget=0.1)  # bfloat16 both ways: 0.5 bits an element, so a fifth of all
    assert policy.bits_per_element == 0.5
    assert policy.choose([0.9, 0.5, 0.2, 0.8], [10, 10, 5, 70], 100) == [True, True, False, False]
    assert policy.choose([0.1, 0.5, 0.9, 0.8], [10, 10, 5, 70], 100) == [False, True, True, False]
    assert policy.choose([0.0, 0.0, 0.0, 0.0], [1, 1, 1, 1], 100) == [False] * 4


def test_divergence_of_equal_and_unrelated_momenta() -> None:
    rng = np.random.default_rng(0)
    row = rng.standard_normal((1, 1000), dtype=np.float32)
    assert divergence(np.repeat(row, 4, axis=0)) < 1e-6
    assert divergence(rng.standard_normal((4, 100_000), dtype=np.float32)) == pytest.approx(0.75, abs=0.01)
    assert divergence(np.zeros((4, 10), dtype=np.float32)) == 0


def test_samples_are_small_and_spread_over_the_tensor() -> None:
    assert sample(torch.arange(10.0)).tolist() == list(range(10))
    picked = sample(torch.arange(100_000.0))
    assert picked.numel() == SAMPLE
    assert picked[-1] > 90_000


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"every": 0}, "period"),
        ({"every": 1.5}, "period"),
        ({"dtype": torch.float16}, "bfloat16"),
        ({"budget": 0}, "budget"),
    ],
)
def test_impossible_policies_raise(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        MomentumSync(**settings)
