"""Plain Lion: the same steps as a world of one, in one pass; and what it does with numbers that are not finite."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lioncub import DistributedLion, Lion, kernels, reference
from lioncub.errors import ConfigError, SparseGradientError
from tests.kernel_cases import same_bits

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
BODIES = [name for name, reason in kernels.bodies().items() if not reason]
SETTINGS: dict[str, Any] = {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.1}


@pytest.fixture(params=BODIES, autouse=True)
def body(request: pytest.FixtureRequest) -> Any:
    if request.param == "torch":
        with kernels.using("torch"):
            yield request.param
    else:
        yield request.param


def parameters(dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((), (3, 5), (64,), (1025,), (2, 3, 4, 4))
    params = [nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in shapes]
    params[-1].data = params[-1].data.to(memory_format=torch.channels_last)
    return params


def give_gradients(params: list[nn.Parameter], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for param in params:
        g = torch.randn(param.shape, generator=generator)
        param.grad = (g * (g.abs() > 0.3)).to(param.dtype)


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_equals_a_world_of_one(dtype: torch.dtype, maximize: bool) -> None:
    mine, theirs = parameters(dtype), parameters(dtype)
    plain = Lion(mine, **SETTINGS, maximize=maximize)
    alone = DistributedLion(theirs, **SETTINGS, maximize=maximize)
    for step in range(20):
        for params, optimizer in ((mine, plain), (theirs, alone)):
            give_gradients(params, step)
            optimizer.step()
    for a, b in zip(mine, theirs, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(plain.state[a]["exp_avg"], alone.state[b]["exp_avg"])
    assert plain.num_skipped == 0


@pytest.mark.parametrize("options", [{}, {"stochastic_rounding": True, "rounding_seed": 9}])
def test_equals_the_reference_in_half_precision(options: dict[str, Any]) -> None:
    params = parameters(torch.bfloat16)
    optimizer = Lion(params, **SETTINGS, momentum_dtype=torch.bfloat16, **options)
    xs = [param.detach().clone().reshape(-1) for param in params]
    ms = [torch.zeros(1, x.numel(), dtype=torch.bfloat16) for x in xs]
    for step in range(10):
        give_gradients(params, step)
        for number, param in enumerate(params):
            assert param.grad is not None

            def store(wide: Tensor, number: int = number, step: int = step) -> Tensor:
                if not options:
                    return wide.to(torch.bfloat16)
                return reference.rounded_at_random(wide, 9, number, step)

            g = param.grad.reshape(1, -1)
            xs[number], ms[number] = reference.lion_step(
                xs[number], ms[number], g, step, reference.vote, **SETTINGS, store=store
            )
        optimizer.step()
    for param, x, m in zip(params, xs, ms, strict=True):
        assert same_bits(param.detach().reshape(-1), x)
        assert same_bits(optimizer.state[param]["exp_avg"].reshape(1, -1), m)


def test_what_is_not_finite_stays_and_is_counted() -> None:
    params = parameters()
    optimizer = Lion(params, **SETTINGS)
    give_gradients(params, 0)
    optimizer.step()
    before = copy.deepcopy([param.detach() for param in params])
    give_gradients(params, 1)
    for param in params:
        assert param.grad is not None
        param.grad.view(-1)[0] = float("nan")
    optimizer.step()
    assert optimizer.num_skipped == len(params)
    for param, old in zip(params, before, strict=True):
        assert param.reshape(-1)[0] == old.reshape(-1)[0]
        assert torch.isfinite(optimizer.state[param]["exp_avg"]).all()
        assert (param != old).sum() == param.numel() - 1


def test_small_updates_survive_stochastic_rounding_and_only_that() -> None:
    """A step of 1e-4 is a fortieth of bfloat16's step at 1: to nearest, nothing would ever move."""
    for noisy in (False, True):
        x = nn.Parameter(torch.ones(20_000, dtype=torch.bfloat16))
        optimizer = Lion([x], lr=1e-4, stochastic_rounding=noisy)
        for _ in range(200):
            x.grad = torch.ones_like(x)
            optimizer.step()
        moved = 1 - x.float().mean().item()
        assert moved == pytest.approx(0.02, rel=0.05) if noisy else moved == 0


def test_stochastic_rounding_keeps_the_mean_and_uses_neighbours_only() -> None:
    values = torch.randn(50_000)
    x = nn.Parameter(torch.zeros(50_000, dtype=torch.bfloat16))
    rounded = torch.zeros(50_000)
    rounds = 64
    for step in range(rounds):
        x.data.zero_()
        direction = kernels.Direction("values", _blocks(-values))
        kernels.apply_([kernels.Move(x.data, 0, 1.0, 1.0, 1, noise=kernels.noise_key(1, 0, step))], direction)
        low = values.abs().view(torch.int32).bitwise_and(-65536).view(torch.float32)
        gap = (x.data.float().abs() - low) / (low.view(torch.int32) + 65536).view(torch.float32).sub(low)
        assert ((gap == 0) | (gap == 1)).all()
        rounded += x.data.float()
    error = (rounded / rounds - values) / values.abs()
    assert abs(error.mean().item()) < 1e-5
    assert error.std().item() < 2**-8 / rounds**0.5


def _blocks(values: Tensor) -> Tensor:
    padded = torch.zeros(-(-len(values) // 64) * 64)
    padded[: len(values)] = values
    return padded.view(torch.uint8).view(-1, 256)


def test_seeds_steps_and_tensors_draw_different_numbers() -> None:
    keys = {kernels.noise_key(seed, tensor, step) for seed in range(5) for tensor in range(5) for step in range(5)}
    assert len(keys) == 125


def test_state_is_saved_and_loaded_in_its_own_precision() -> None:
    params = parameters(torch.bfloat16)
    optimizer = Lion(params, **SETTINGS)
    give_gradients(params, 0)
    optimizer.step()
    other_params = [nn.Parameter(param.detach().clone()) for param in params]
    other = Lion(other_params, lr=1.0)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert other.param_groups[0]["lr"] == 0.01
    for a, b in ((params, optimizer), (other_params, other)):
        give_gradients(a, 1)
        b.step()
    for p, q in zip(params, other_params, strict=True):
        assert other.state[q]["exp_avg"].dtype == torch.float32
        assert torch.equal(p, q)


def test_closures_schedulers_and_groups() -> None:
    p, q, unused = (nn.Parameter(torch.ones(3)) for _ in range(3))
    optimizer = Lion([{"params": [p], "lr": 0.5}, {"params": [q, unused]}], lr=0.25)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (p + q).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure) == 6
    scheduler.step()
    optimizer.step(closure)
    assert torch.equal(p, torch.full((3,), 1 - 0.5 - 0.25))
    assert torch.equal(q, torch.full((3,), 1 - 0.25 - 0.125))
    assert torch.equal(unused, torch.ones(3))


def test_bad_settings_are_refused() -> None:
    p = nn.Parameter(torch.ones(3))
    for options, says in (
        ({"lr": -1.0}, "lr"),
        ({"betas": (0.9, 1.0)}, "betas"),
        ({"momentum_dtype": torch.float16}, "bfloat16"),
        ({"rounding_seed": 0.5}, "rounding_seed"),
    ):
        with pytest.raises(ConfigError, match=says):
            Lion([p], **options)
    with pytest.raises(ConfigError, match="empty parameter list"):
        Lion([])
    p.grad = torch.sparse_coo_tensor(torch.tensor([[0]]), torch.ones(1), (3,), check_invariants=True)
    with pytest.raises(SparseGradientError, match="parameter 0"):
        Lion([p]).step()


def test_autograd_notices_that_parameters_have_moved() -> None:
    p = nn.Parameter(torch.ones(3))
    for optimizer in (Lion([p], lr=0.1), DistributedLion([p], lr=0.1)):
        p.grad = None
        loss = (p * p).sum()
        p.grad = torch.ones(3)
        optimizer.step()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
