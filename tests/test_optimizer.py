"""A world of one is Lion, with all of torch's conventions."""

from __future__ import annotations

import copy
import io
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lioncub import Dense, DistributedLion, Levels, LionCub, Mean, Vote
from lioncub.codecs import Codec
from lioncub.errors import ConfigError, LionCubError, QuorumError, SparseGradientError


def make_model(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(7, 16), nn.Tanh(), nn.Linear(16, 5)).to(dtype)


def backward(model: nn.Module, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    dtype = next(model.parameters()).dtype
    x = torch.randn(8, 7, generator=generator).to(dtype)
    loss: Tensor = (model(x) - 1).square().mean()
    loss.backward()
    return loss


@pytest.mark.parametrize("codec", [Vote(), Mean(), Levels(2), Levels(4, grid="midtread"), Dense()], ids=repr)
def test_is_lion_to_the_bit(codec: Any) -> None:
    model, lr, decay = make_model(), 0.01, 0.3
    optimizer = DistributedLion(model.parameters(), lr, weight_decay=decay, codec=codec, memory="constant")
    x = [p.detach().clone() for p in model.parameters()]
    m = [torch.zeros_like(p) for p in x]
    for step in range(20):
        optimizer.zero_grad()
        backward(model, step)
        for i, p in enumerate(model.parameters()):
            assert p.grad is not None
            u = m[i] * 0.9 + p.grad * (1 - 0.9)
            x[i] = x[i] * (1 - lr * decay) - torch.sign(u) * lr
            m[i] = m[i] * 0.99 + p.grad * (1 - 0.99)
        optimizer.step()
    for i, p in enumerate(model.parameters()):
        assert torch.equal(p, x[i])
        assert torch.equal(optimizer.state[p]["exp_avg"], m[i])
    assert optimizer.stats.bytes_sent == 0


def test_matches_lion_pytorch_over_50_steps() -> None:
    from lion_pytorch import Lion

    ours, theirs = make_model(), make_model()
    a = DistributedLion(ours.parameters(), 1e-3, weight_decay=0.1, memory="constant")
    b = Lion(theirs.parameters(), 1e-3, weight_decay=0.1)
    for step in range(50):
        for model, optimizer in ((ours, a), (theirs, b)):
            optimizer.zero_grad()
            backward(model, step)
            optimizer.step()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, atol=1e-6, rtol=1e-5)


def test_zero_gradients_move_nothing_when_alone() -> None:
    p = nn.Parameter(torch.ones(5))
    optimizer = DistributedLion([p], 0.1)
    p.grad = torch.zeros(5)
    optimizer.step()
    assert torch.equal(p, torch.ones(5))


def test_groups_have_their_own_settings() -> None:
    p, q = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    optimizer = DistributedLion(
        [
            {"params": [p], "lr": 0.1},
            {"params": [q], "lr": 0.2, "weight_decay": 0.5, "codec": Mean(), "maximize": True},
        ],
        memory="constant",
    )
    p.grad = q.grad = torch.ones(3)
    optimizer.step()
    torch.testing.assert_close(p.detach(), torch.full((3,), 0.9))
    torch.testing.assert_close(q.detach(), torch.full((3,), 0.9 + 0.2))


def test_schedulers_take_effect() -> None:
    """Known mistake: ``defaults["lr"]`` ignores schedulers."""
    p = nn.Parameter(torch.zeros(2))
    optimizer = DistributedLion([p], 1.0, memory="constant")
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for expected in (-1.0, -1.5, -1.75):
        p.grad = torch.ones(2)
        optimizer.step()
        scheduler.step()
        assert p.tolist() == [expected] * 2


@pytest.mark.parametrize(
    ("settings", "codec"),
    [
        ({}, Levels(4, grid="float")),
        ({"bits": 1}, Vote()),
        ({"bits": 5, "scale": "linf"}, Levels(5, "linf", "log")),
        ({"bits": 2, "scale": "linf"}, Levels(2, "linf")),
        ({"bits": 6}, Levels(6)),
        ({"bits": 2}, Levels(2, grid="log")),
        ({"bits": 3}, Levels(3, grid="float")),
        ({"bits": 2, "grid": "midrise"}, Levels(2)),
        ({"grid": "midtread"}, Levels(4, grid="midtread")),
    ],
)
def test_lion_cub_chooses_its_codec(settings: dict[str, Any], codec: Codec) -> None:
    assert LionCub([nn.Parameter(torch.ones(1))], **settings).param_groups[0]["codec"] == codec


def test_state_dict_round_trips_through_a_safe_file() -> None:
    runs = []
    for interrupted in (False, True):
        model = make_model(torch.bfloat16)
        optimizer = LionCub(model.named_parameters(), 0.01, bits=4, weight_decay=0.1)
        for step in range(6):
            if step == 3 and interrupted:
                file = io.BytesIO()
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
                file.seek(0)
                saved = torch.load(file, weights_only=True)
                model = make_model(torch.bfloat16)
                model.load_state_dict(saved["model"])
                optimizer = LionCub(model.named_parameters(), 0.5, bits=4)
                optimizer.load_state_dict(saved["optimizer"])
                assert optimizer.param_groups[0]["lr"] == 0.01
                assert optimizer.param_groups[0]["step"] == 3
                assert optimizer.param_groups[0]["codec"] == Levels(4, grid="float")
            optimizer.zero_grad()
            backward(model, step)
            optimizer.step()
        momenta = [optimizer.state[p]["exp_avg"] for p in model.parameters()]
        assert all(m.dtype == torch.float32 for m in momenta), "torch would cast momenta to the parameter's dtype"
        runs.append([*model.parameters(), *momenta])
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


def test_loads_the_state_of_a_plain_lion() -> None:
    from lion_pytorch import Lion

    model = make_model()
    theirs = Lion(model.parameters(), 1e-3)
    backward(model, 0)
    theirs.step()
    ours = DistributedLion(model.parameters(), 1e-4, codec=Mean())
    ours.load_state_dict(theirs.state_dict())
    assert ours.param_groups[0]["lr"] == 1e-3
    assert ours.param_groups[0]["codec"] == Mean()
    for p in model.parameters():
        assert torch.equal(ours.state[p]["exp_avg"], theirs.state[p]["exp_avg"])
    ours.step()


def test_states_that_do_not_fit_are_refused_and_change_nothing() -> None:
    model = make_model()
    optimizer = DistributedLion(model.parameters(), 0.5)
    adam = torch.optim.AdamW(model.parameters())
    backward(model, 0)
    adam.step()
    for foreign in (adam, torch.optim.SGD(model.parameters(), 0.1), torch.optim.RMSprop(model.parameters())):
        with pytest.raises(ConfigError, match="another kind of optimizer"):
            optimizer.load_state_dict(foreign.state_dict())
    other = DistributedLion(nn.Linear(2, 2).parameters())
    with pytest.raises(ConfigError, match="2 parameters, the optimizer 4"):
        optimizer.load_state_dict(other.state_dict())
    wider = nn.Sequential(nn.Linear(7, 17), nn.Tanh(), nn.Linear(17, 5))
    with pytest.raises(ConfigError, match=r"\(16, 7\).*\(17, 7\)"):
        optimizer.load_state_dict(DistributedLion(wider.parameters()).state_dict())
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_a_group_added_later_joins_the_count_of_steps() -> None:
    p, q = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    optimizer = DistributedLion([p], 0.1)
    for _ in range(3):
        p.grad = torch.ones(3)
        optimizer.step()
    optimizer.add_param_group({"params": [q]})
    q.grad = torch.ones(3)
    optimizer.step()
    assert [group["step"] for group in optimizer.param_groups] == [4, 4]
    assert q.tolist() != [1, 1, 1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_precisions(dtype: torch.dtype) -> None:
    model = make_model(dtype)
    optimizer = DistributedLion(model.parameters(), 2.0**-6, memory="constant")
    before = [p.detach().clone() for p in model.parameters()]
    backward(model, 0)
    optimizer.step()
    for p, old in zip(model.parameters(), before, strict=True):
        assert p.grad is not None
        assert optimizer.state[p]["exp_avg"].dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        expected = (old.to(wide) - torch.sign(p.grad.to(wide)) * 2.0**-6).to(dtype)
        assert torch.equal(p, expected)


def test_closure_and_maximize() -> None:
    p = nn.Parameter(torch.tensor([3.0]))
    optimizer = DistributedLion([p], 0.5, maximize=True, memory="constant")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (p * 2).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 6.0
    assert p.item() == 3.5


def test_accumulated_gradients_equal_one_large_batch() -> None:
    x = torch.randn(8, 7)
    models = [make_model(torch.float64), make_model(torch.float64)]
    for model, pieces in zip(models, (1, 4), strict=True):
        optimizer = DistributedLion(model.parameters(), 0.01)
        for _ in range(3):
            optimizer.zero_grad()
            for number, chunk in enumerate(x.double().chunk(pieces)):
                if number < pieces - 1:
                    with optimizer.no_sync():
                        (model(chunk).square().sum() / 8).backward()
                else:
                    (model(chunk).square().sum() / 8).backward()
            optimizer.step()
    for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(p, q)


def test_parameters_without_gradient_are_left_alone() -> None:
    used, unused, frozen = (nn.Parameter(torch.ones(3)) for _ in range(3))
    frozen.requires_grad_(False)
    optimizer = DistributedLion([used, unused, frozen], 0.1, weight_decay=0.5)
    used.sum().backward()
    optimizer.step()
    assert used.tolist() != [1, 1, 1]
    assert unused.tolist() == [1, 1, 1], "no gradient: no decay either, as in torch"
    assert frozen.tolist() == [1, 1, 1]
    frozen.requires_grad_(True)
    optimizer.zero_grad()
    (used + frozen).sum().backward()
    optimizer.step()
    assert frozen.tolist() != [1, 1, 1], "a parameter that thaws is trained"


def test_non_contiguous_parameters() -> None:
    conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    twin = copy.deepcopy(conv).to(memory_format=torch.contiguous_format)
    for model in (conv, twin):
        optimizer = DistributedLion(model.parameters(), 0.01, weight_decay=0.1)
        for seed in range(3):
            optimizer.zero_grad()
            model(torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(seed))).square().sum().backward()
            optimizer.step()
    torch.testing.assert_close(conv.weight, twin.weight, atol=1e-6, rtol=0)
    assert conv.weight.is_contiguous(memory_format=torch.channels_last)


def test_exchange_and_apply_apart() -> None:
    p = nn.Parameter(torch.ones(3))
    optimizer = DistributedLion([p], 0.1, memory="constant")
    p.grad = torch.ones(3)
    optimizer.exchange()
    assert p.tolist() == [1, 1, 1]
    assert optimizer.state[p]["exp_avg"].tolist() == [0, 0, 0]
    optimizer.exchange()  # an outcome that was not applied is dropped
    optimizer.apply()
    torch.testing.assert_close(p.detach(), torch.full((3,), 0.9))
    with pytest.raises(LionCubError, match="exchange"):
        optimizer.apply()


def test_a_gradient_changed_between_exchange_and_apply_stays_out_of_the_momentum() -> None:
    p = nn.Parameter(torch.ones(3))
    optimizer = DistributedLion([p], 0.1, memory="constant")
    p.grad = torch.ones(3)
    optimizer.exchange()
    p.grad.mul_(math.nan)
    with pytest.warns(UserWarning, match="between exchange"):
        optimizer.apply()
    torch.testing.assert_close(p.detach(), torch.full((3,), 0.9), msg="what was agreed on is applied everywhere")
    assert optimizer.state[p]["exp_avg"].tolist() == [0, 0, 0]


def test_not_finite_alone_raises_and_changes_nothing() -> None:
    p = nn.Parameter(torch.ones(3))
    optimizer = DistributedLion([p], 0.1)
    p.grad = torch.tensor([1.0, math.nan, 1.0])
    with pytest.raises(QuorumError, match="0 of 1"):
        optimizer.step()
    assert p.tolist() == [1, 1, 1]
    p.grad = torch.ones(3)
    optimizer.step()
    assert p.tolist() != [1, 1, 1], "the next step goes on"


def test_sparse_gradients_are_refused() -> None:
    table = nn.Embedding(10, 3, sparse=True)
    optimizer = DistributedLion(table.parameters(), 0.1)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(SparseGradientError, match="sparse=False"):
        optimizer.step()


def test_a_process_group_made_too_late_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    p = nn.Parameter(torch.ones(3))
    optimizer = DistributedLion([p], 0.1)
    p.grad = torch.ones(3)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(ConfigError, match="init_process_group"):
        optimizer.step()


P = nn.Parameter


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: DistributedLion([]), "empty parameter list"),
        (lambda: DistributedLion(iter([])), "empty parameter list"),
        (lambda: DistributedLion([{"params": []}]), "groups are empty"),
        (lambda: DistributedLion([P(torch.ones(1))], collective=["sum"]), "two-phase"),  # type: ignore[arg-type]
        (lambda: copy.deepcopy(DistributedLion([P(torch.ones(1))])), "cannot be copied"),
        (lambda: pickle.dumps(DistributedLion([P(torch.ones(1))])), "cannot be pickled"),
        (lambda: DistributedLion([P(torch.ones(1))], lr=-1), "lr=-1"),
        (lambda: DistributedLion([P(torch.ones(1))], lr=math.nan), "lr=nan"),
        (lambda: DistributedLion([P(torch.ones(1))], betas=(0.9, 1.0)), "betas"),
        (lambda: DistributedLion([P(torch.ones(1))], weight_decay=-1), "weight_decay"),
        (lambda: DistributedLion([P(torch.ones(1))], codec="vote"), "codec object"),  # type: ignore[arg-type]
        (lambda: DistributedLion([P(torch.ones(1))], collective="ring"), "two-phase"),
        (lambda: DistributedLion([P(torch.ones(1))], quorum=2), "quorum=2"),
        (lambda: DistributedLion([P(torch.ones(1, dtype=torch.complex64))]), "complex64"),
        (lambda: DistributedLion([P(torch.ones(1))], collective="sum", codec=Vote()), "cannot add up"),
        (lambda: LionCub([P(torch.ones(1))], bits=9), "2 to 8"),
        (lambda: LionCub([P(torch.ones(1))], bits=[4]), "bits must be"),  # type: ignore[arg-type]
        (lambda: LionCub([P(torch.ones(1))], bits=6, grid="log"), "2 to 5"),
        (lambda: LionCub([P(torch.ones(1))], bits=True), "bits must be"),
        (lambda: LionCub([P(torch.ones(1))], grid=""), "grid="),  # type: ignore[arg-type]
        (lambda: LionCub([P(torch.ones(1))], codec=Vote()), "DistributedLion"),
    ],
)
def test_bad_settings_raise_at_construction(make: Callable[[], object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make()


def test_the_box_of_the_theory() -> None:
    """Started outside ‖λx‖∞ ≤ 1, the distance shrinks at (1 - lr·λ) a step; once inside, x stays."""
    torch.manual_seed(0)
    lr, decay = 0.01, 2.0
    p = nn.Parameter(torch.randn(50) * 5)
    optimizer = DistributedLion([p], lr, weight_decay=decay, memory="constant")
    for _ in range(500):
        before = (decay * p.detach().abs() - 1).clamp(min=0)
        p.grad = torch.randn(50)
        optimizer.step()
        after = (decay * p.detach().abs() - 1).clamp(min=0)
        assert (after <= (1 - lr * decay) * before + 1e-5).all()
    assert (decay * p.detach().abs()).max() <= 1 + 1e-5
