"""Runs of methods that exchange seldom, on a real job: gradients at workers' own weights, and that the loss falls."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch

from lioncub.tools.jobs.catalogue import load_job
from lioncub.tools.jobs.job import Job
from lioncub.tools.study import tasks
from lioncub.tools.study.gradients import Replica, apart, one_by_one
from lioncub.tools.study.records import Spec
from lioncub.tools.study.tasks import TASKS, Batches
from lioncub.tools.study.training import train

STEPS = 16
METHODS = (
    "diloco-8",
    "diloco-32",
    "diloco-32-float4",
    "streaming-32",
    "local-adamw-8",
    "sign-momentum-12",
    "sparse-loco-32",
    "demo",
)
SPEC = Spec(task="gpt", method="diloco-8", workers=2, seed=0, lr=3e-3, weight_decay=0.03, steps=STEPS, examples=128)


@cache
def from_the_standard_library(name: str) -> Job:
    return load_job(name, text="stdlib")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text that is always there, and little to be judged on."""
    monkeypatch.setattr(tasks, "_loaded", from_the_standard_library)
    monkeypatch.setitem(TASKS, "gpt", replace(TASKS["gpt"], judged_on=512))


def test_gradients_at_equal_weights_are_those_of_shared_ones_bit_for_bit() -> None:
    job = TASKS["gpt"].load()
    model, batches = job.model(0), Batches(TASKS["gpt"], 2, 0)
    own = [batches.of(worker) for worker in range(2)]
    weights = [[param.detach().clone() for param in model.parameters()] for _ in own]
    for (loss, gradients), (other_loss, others) in zip(
        apart(job, model, own, weights), one_by_one(job, model, own), strict=True
    ):
        assert loss == other_loss
        assert all(torch.equal(one, other) for one, other in zip(gradients, others, strict=True))


def test_a_worker_s_gradient_is_taken_at_its_weights_and_the_model_stays() -> None:
    job = TASKS["gpt"].load()
    model, batches = job.model(0), Batches(TASKS["gpt"], 2, 0)
    before = [param.detach().clone() for param in model.parameters()]
    batch = batches.of(0)
    moved = [[param * factor for param in before] for factor in (1.0, 0.5)]
    (loss, _), (other, _) = Replica(model, torch.device("cpu")).gradients(job, [batch, batch], moved)
    assert loss != other
    for param, value in zip(model.parameters(), before, strict=True):
        assert torch.equal(param, value)
        param.data.mul_(0.5)
    assert other == next(one_by_one(job, model, [batch]))[0]


@pytest.mark.parametrize("method", METHODS)
def test_the_loss_falls(method: str) -> None:
    run = train(replace(SPEC, method=method))
    assert run.train_losses[-1] < run.train_losses[0] - 0.3
    assert run.loss is not None
    assert run.loss < run.train_losses[0] - 0.05, "what is shared learns as well"
