"""The growing decay rate and the warm-up: by hand, with groups and saved states, in every optimizer."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import nn

from lioncub import DistributedLion, Lion, LionCub, reference
from lioncub.momentum.memory import beta2_at, betas_now, lr_at, lr_now, usual_warmup

MAKERS: list[Any] = [Lion, DistributedLion, LionCub]


def test_memory_grows_to_a_tenth_of_the_run_and_stops_at_beta2() -> None:
    assert [beta2_at(t, 0.99, 10.0) for t in (0, 1, 10, 90)] == [0.0, 1 / 11, 0.5, 0.9]
    assert beta2_at(989, 0.99, 10.0) < 0.99 == beta2_at(990, 0.99, 10.0) == beta2_at(10**6, 0.99, 10.0)
    assert beta2_at(0, 0.99, 0.0) == 0.99


def test_a_growing_momentum_is_a_mean_over_the_last_part_of_the_run() -> None:
    """With c = 1 it is the plain mean of all gradients; with c = 10 it lags by about an eleventh of the steps."""
    mean = lag = 0.0
    for t in range(500):
        mean = beta2_at(t, 1.0, 1.0) * mean + (1 - beta2_at(t, 1.0, 1.0)) * t
        lag = beta2_at(t, 1.0, 10.0) * lag + (1 - beta2_at(t, 1.0, 10.0)) * t
    assert mean == pytest.approx(499 / 2)
    assert 499 - lag == pytest.approx(500 / 11, rel=0.02)


def test_the_rate_rises_over_the_usual_warmup() -> None:
    assert usual_warmup(0.99, "growing") == 200
    assert usual_warmup(0.99, "constant") == usual_warmup(0.99, 0.0) == 0
    assert [lr_at(t, 2.0, 4) for t in range(6)] == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]
    assert lr_at(0, 2.0, 0) == 2.0


@pytest.mark.parametrize("t", [0, 1, 5, 199, 200, 989, 990, 5000])
@pytest.mark.parametrize("memory", [0.0, 1.5, 10.0])
def test_the_reference_says_the_same(t: int, memory: float) -> None:
    assert reference.remembered(t, 0.99, memory) == beta2_at(t, 0.99, memory)
    assert reference.risen(t, 0.003, 200) == lr_at(t, 0.003, 200)


@pytest.mark.parametrize("make", MAKERS)
def test_every_optimizer_alone_equals_the_reference_as_it_comes(make: Any) -> None:
    p = nn.Parameter(torch.linspace(-1, 1, 50))
    optimizer = make([p], lr=0.25, betas=(0.9, 0.6), weight_decay=0.1)
    x, m = p.detach().clone(), torch.zeros(1, 50)
    for t in range(30):  # past 15 steps of growth and 5 of rising rates
        p.grad = torch.randn(50, generator=torch.Generator().manual_seed(t))
        g = p.grad.clone()[None]
        optimizer.step()
        x, m = reference.lion_step(
            x, m, g, t, reference.vote, lr=0.25, betas=(0.9, 0.6), weight_decay=0.1, memory=10.0, warmup=5
        )
    assert torch.equal(p, x)
    assert torch.equal(optimizer.state[p]["exp_avg"], m[0])


@pytest.mark.parametrize("make", MAKERS)
def test_groups_have_their_own_memory_and_count_from_when_they_came(make: Any) -> None:
    p, q, late = (nn.Parameter(torch.ones(3)) for _ in range(3))
    optimizer = make([{"params": [p]}, {"params": [q], "memory": "constant", "warmup": 7}], lr=0.7)
    for _ in range(20):
        p.grad = q.grad = torch.ones(3)
        optimizer.step()
    optimizer.add_param_group({"params": [late], "memory": 2.0})
    first, second, third = optimizer.param_groups
    assert (betas_now(first), lr_now(first)) == ((0.9, 20 / 30), 0.7 * 21 / 200)
    assert (betas_now(second), lr_now(second)) == ((0.9, 0.99), 0.7)
    assert (betas_now(third), lr_now(third)) == ((0.9, 0.0), 0.7 / 200)
    late.grad = torch.full((3,), 4.0)
    optimizer.step()
    assert optimizer.state[late]["exp_avg"].tolist() == [4.0] * 3
    assert betas_now(third)[1] == 1 / 3


@pytest.mark.parametrize("make", MAKERS)
def test_a_saved_run_goes_on_with_the_memory_that_it_had(make: Any) -> None:
    p = nn.Parameter(torch.ones(4))
    optimizer = make([p], lr=0.1, memory=3.0, warmup=11)
    for step in range(9):
        p.grad = torch.full((4,), float(step))
        optimizer.step()
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    q = nn.Parameter(p.detach().clone())
    other = make([q], lr=0.5)
    other.load_state_dict(torch.load(file, weights_only=True))
    for each, param in ((optimizer, p), (other, q)):
        param.grad = torch.full((4,), -9.0)
        each.step()
    assert torch.equal(p, q)
    assert torch.equal(optimizer.state[p]["exp_avg"], other.state[q]["exp_avg"])


def test_a_state_from_before_there_was_growing_memory_takes_this_optimizers() -> None:
    p = nn.Parameter(torch.ones(4))
    optimizer = Lion([p], lr=0.1)
    p.grad = torch.ones(4)
    optimizer.step()
    old = copy.deepcopy(optimizer.state_dict())
    for name in ("memory", "warmup", "since"):
        del old["param_groups"][0][name]
    old["param_groups"][0]["step"] = 5000
    fresh = Lion([p], memory="constant", warmup=3)
    fresh.load_state_dict(old)
    assert betas_now(fresh.param_groups[0]) == (0.9, 0.99)
    grown = Lion([p])
    grown.load_state_dict(old)
    assert betas_now(grown.param_groups[0]) == (0.9, 0.99), "5,000 steps have filled it"
    assert lr_now(grown.param_groups[0]) == 0.1
