"""Streaming DiLoCo: against a transcription of its paper, against DiLoCo, and by its bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from lioncub.errors import ConfigError
from lioncub.tools.jobs.catalogue import load_job
from lioncub.tools.study.baselines import DiLoCo, StreamingDiLoCo
from lioncub.tools.study.baselines.formats import Precision, format_of
from lioncub.tools.study.baselines.fragments import strided
from lioncub.tools.study.errors import DivergedError
from lioncub.tools.study.methods import METHODS
from lioncub.tools.study.records import Spec
from tests.support.local_adamw import BETAS, DECAY, Workers, gradients_at, rate
from tests.support.method_steps import SHAPES, flat, normal, step, zeros

NAMES = ("embedding", "blocks.0.weight", "blocks.1.weight", "head")
"""Four layers of one tensor each."""

make = partial(StreamingDiLoCo, weight_decay=DECAY, betas=BETAS)


# ---- fragments -----------------------------------------------------------------------------------------------------


def test_layers_are_dealt_to_fragments_in_turn() -> None:
    names = ["positions", "embedding", *(f"blocks.{n}.{part}" for n in range(4) for part in "ab"), "norm", "head"]
    assert strided(names, 1) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]
    assert strided(names, 3) == [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 10, 11]]
    assert strided(names, 4) == strided(names, 3)
    assert strided(names, 6) == [list(range(12))]


def test_the_first_number_of_a_name_is_the_layer_and_names_without_any_are_one() -> None:
    assert strided(["stages.1.shortcut.0.weight", "stages.0.conv1.weight"], 1) == [[1], [0]]
    assert strided(["weight", "bias"], 1) == [[0, 1]]
    with pytest.raises(ConfigError, match="layers_per_fragment=0"):
        strided(NAMES, 0)


# ---- the method ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [1, 4])
def test_one_fragment_without_delay_is_diloco_bit_for_bit(every: int) -> None:
    streaming = make(
        normal(1),
        3,
        names=["weight"] * len(SHAPES),
        every=every,
        delay=0,
        alpha=0.0,
        outer_lr=0.7,
        up="float32",
        down="float32",
    )
    diloco = DiLoCo(normal(1), 3, weight_decay=DECAY, betas=BETAS, every=every)
    for t in range(10):
        gradients = gradients_at(t, 3)
        one, other = (step(method, gradients, rate(t), last=t == 9) for method in (streaming, diloco))
        assert one == other
        assert torch.equal(flat(streaming.params), flat(diloco.params))
        assert all(torch.equal(a, b) for a, b in zip(streaming.y, diloco.y, strict=True))


@pytest.mark.parametrize("precision", ["float32", "float4"])
@pytest.mark.parametrize("delay", [0, 2])
@pytest.mark.parametrize("fragments", [([0], [1], [2], [3]), ([0, 2], [1, 3])], ids=["of 1 layer", "of 2"])
def test_it_is_the_papers(fragments: Sequence[list[int]], delay: int, precision: Precision) -> None:
    """H = 4. Step 11 is the last: some fragments are due, some in flight, and some neither."""
    per_fragment = len(NAMES) // len(fragments)
    method = make(
        normal(1), 2, names=NAMES, every=4, delay=delay, layers_per_fragment=per_fragment, up=precision, down=precision
    )
    workers, x, m = Workers(normal(1), 2), normal(1), zeros()
    sent: dict[int, tuple[int, list[Tensor]]] = {}
    for t in range(1, 12):
        step(method, gradients_at(t, 2), rate(t), last=t == 11)
        workers.step(gradients_at(t, 2), rate(t))
        for p, tensors in enumerate(fragments):
            phase = p * 4 // len(fragments)
            if p not in sent and (t == 11 or (t - phase) % 4 == 0):
                one, other = (rounded([x[i] - y[i] for i in tensors], precision) for y in workers.y)
                sent[p] = t + delay, rounded([(a + b) / 2 for a, b in zip(one, other, strict=True)], precision)
        for p in [p for p, (arrival, _) in sent.items() if t in (arrival, 11)]:
            for i, d in zip(fragments[p], sent.pop(p)[1], strict=True):
                m[i] = 0.9 * m[i] + d
                x[i] = x[i] - 0.4 * (d + 0.9 * m[i])
                for y in workers.y:
                    y[i].copy_(0.5 * y[i] + 0.5 * x[i])
        torch.testing.assert_close(flat(method.params), flat(x), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(torch.stack(method.y), workers.flat(), rtol=1e-5, atol=1e-5)
    assert not sent


def rounded(tensors: list[Tensor], precision: Precision) -> list[Tensor]:
    """What is left of tensors that are sent."""
    sizes = [tensor.numel() for tensor in tensors]
    form = format_of(precision, sizes)
    parts = form.decode(form.encode(flat(tensors))).split(sizes)
    return [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)]


def test_weights_that_are_not_finite_are_an_error() -> None:
    method = make(zeros((2,)), 1, names=["weight"], every=1, delay=0)
    with pytest.raises(DivergedError, match="step 0: a weight of worker 0"):
        step(method, [[torch.tensor([1.0, float("nan")])]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, r"every=0\): an exchange after 1 step"),
        ({"delay": 6}, r"delay=6\): an outcome is 0 to 5 steps late with every=32"),
        ({"every": 3, "delay": 3}, r"delay=3\): an outcome is 0 to 2 steps late with every=3"),
        ({"delay": -1}, r"delay=-1\)"),
        ({"alpha": 1.0}, r"alpha=1.0\)"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(zeros(), 2, names=NAMES, **options)


# ---- bytes ---------------------------------------------------------------------------------------------------------


def test_bytes_are_the_fragments_and_no_step_carries_the_model() -> None:
    """8 equal layers, each a matrix and a vector, H = 16: a fragment leaves every 2 steps, and arrives 2 later."""
    every, delay, shapes = 16, 2, ((8, 9), (5,)) * 8
    names = [f"blocks.{layer}.{part}" for layer in range(8) for part in ("weight", "bias")]
    method = make(zeros(*shapes), 3, names=names, every=every, delay=delay, layers_per_fragment=1)
    fragment_bytes = 2 * 4 + math.ceil((8 * 9 + 5) * 4 / 8)
    up, down = [], []
    for t in range(1, 4 * every + 1):
        sent, received = step(method, [normal(10 * t + worker, *shapes) for worker in range(3)], 0.01)
        assert len(set(sent)) == 1, "all workers send as much"
        up.append(sent[0])
        down.append(received)
    assert up == [fragment_bytes * (t % 2 == 0) for t in range(1, 4 * every + 1)]
    assert down == [0] * delay + up[:-delay]
    assert max(up) == max(down) == every // 8 * (sum(up) / len(up))


def test_bits_on_the_study_s_model() -> None:
    """4/H up and the scales; no step carries a third of the model."""
    model = load_job("gpt-230k", text="stdlib").model(0)
    spec = Spec(task="gpt", method="streaming-32", workers=2, seed=0, lr=3e-3, weight_decay=0.0, steps=65, examples=8)
    method = METHODS["streaming-32"].build(list(model.named_parameters()), spec)
    gradients = [torch.full_like(param, 1e-3) for param in method.params]
    bits = []
    for t in range(64):
        sent, _ = step(method, [gradients] * 2, 3e-3)
        assert sent[0] == sent[1], t
        bits.append(8 * sent[0] / method.numel)
    scales = 32 * len(method.params) / method.numel
    assert sum(bits) / 64 == pytest.approx((4 + scales) / 32, rel=1e-3)
    assert max(bits) < 4 / 3
