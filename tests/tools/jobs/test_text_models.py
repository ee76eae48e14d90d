"""The first weights of GPT-2 and Llama are those of their reference implementations."""

from __future__ import annotations

import math
import re
import subprocess
import sys

import pytest
import torch
from torch import nn

from lioncub.errors import ConfigError
from lioncub.tools.data.load import load_text
from lioncub.tools.jobs import load_job
from lioncub.tools.jobs.gpt2 import GPT2, STD
from lioncub.tools.jobs.text import TextJob
from lioncub.tools.study.gradients import one_by_one
from tests.support.text_jobs import text_job

MODELS = ("gpt-normal-480k", "llama-400k")


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def after_steps(job: TextJob, model: nn.Module, steps: int) -> tuple[float, float]:
    """The held-out loss before and after some steps of AdamW."""
    held_out, batches = job.validation(512), seeded(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=job.adamw_lr)
    with torch.no_grad():
        before = job.loss(model, *held_out).item()
    for _ in range(steps):
        loss = job.loss(model, *job.batch(batches, 256))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return before, job.loss(model, *held_out).item()


# ---- every model -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_weights_follow_from_the_seed(name: str) -> None:
    job = text_job(name)
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    one, same, other = (dict(job.model(seed).named_parameters()) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert not any(torch.equal(one[key], other[key]) for key in one if one[key].dim() > 1)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_knows_nothing_at_first_and_learns_the_same_every_time(name: str) -> None:
    job = text_job(name)
    before, after = after_steps(job, job.model(0), 30)
    assert before == pytest.approx(math.log(256), abs=0.1)
    assert after < 0.6 * before
    assert (before, after) == after_steps(job, job.model(0), 30)


@pytest.mark.parametrize("name", MODELS)
def test_no_byte_depends_on_those_that_follow(name: str) -> None:
    model = text_job(name).model(0)
    inputs = torch.arange(128).repeat(2, 1)
    inputs[1, 64:] += 100
    with torch.no_grad():
        first, second = model(inputs)
    torch.testing.assert_close(first[:64], second[:64])
    assert (first[64:] - second[64:]).abs().amax(1).min() > 1e-3


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_has_a_gradient(name: str) -> None:
    job = text_job(name)
    ((_, gradients),) = one_by_one(job, job.model(0), [job.batch(seeded(0), 256)])
    assert all(gradient.abs().sum() > 0 for gradient in gradients)


# ---- GPT-2 -----------------------------------------------------------------------------------------------------------


def test_all_weights_of_gpt2_are_normal_and_the_residual_projections_smaller() -> None:
    torch.manual_seed(0)
    layers = 8
    model = GPT2(width=64, layers=layers, heads=4, context=128)
    for name, param in model.named_parameters():
        if "norm" in name:
            assert param.unique().tolist() == [1.0 if name.endswith("weight") else 0.0]
        elif name.endswith("bias"):
            assert not param.any()
        else:
            smaller = "attention_out" in name or "mlp_out" in name
            wanted = STD / math.sqrt(2 * layers) if smaller else STD
            assert param.std().item() == pytest.approx(wanted, rel=0.05), name
            assert param.mean().abs().item() < 0.1 * wanted
            assert param.abs().max() > 3 * wanted  # a uniform distribution of this deviation ends at 1.73


def test_the_head_of_gpt2_is_its_embedding() -> None:
    torch.manual_seed(0)
    model = GPT2(width=32, layers=1, heads=2, context=16)
    with torch.no_grad():
        before = model(torch.zeros(1, 4, dtype=torch.int64))
        model.embedding.weight[200] *= 2  # no input
        after = model(torch.zeros(1, 4, dtype=torch.int64))
    torch.testing.assert_close(after[..., 200], 2 * before[..., 200])
    assert torch.equal(after[..., :200], before[..., :200])


# ---- Llama -----------------------------------------------------------------------------------------------------------


def test_the_weights_of_a_llama_are_those_that_transformers_gives_it() -> None:
    from transformers import LlamaForCausalLM

    model = text_job("llama-400k").model(3)
    causal = model.causal
    assert isinstance(causal, LlamaForCausalLM)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        own = LlamaForCausalLM(causal.config)
    assert all(torch.equal(a, b) for a, b in zip(own.parameters(), causal.parameters(), strict=True))
    for name, param in causal.named_parameters():
        if param.dim() > 1:
            assert param.std().item() == pytest.approx(causal.config.initializer_range, rel=0.05), name


def test_without_transformers_a_llama_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    job = load_job("llama-400k")
    with pytest.raises(ConfigError, match=re.escape("a Llama needs transformers: pip install 'lioncub[study]'")):
        job.model(0)


def test_the_jobs_do_not_import_transformers() -> None:
    code = "import sys, lioncub.tools.jobs, lioncub.tools.study.tasks; assert 'transformers' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# ---- the text --------------------------------------------------------------------------------------------------------


def test_a_job_with_a_text_of_its_own_takes_another_when_told() -> None:
    job = load_job("gpt-normal-480k")
    assert isinstance(job, TextJob)
    text = load_text("stdlib")
    assert torch.equal(job.text.train, text.train)
    assert (job.data, job.learned_from) == ("stdlib", f"stdlib ({text.version})")
    assert text_job("gpt-normal-480k").learned_from == "made"
