"""Plain Lion: the same steps as a world of one, in one pass; and what it does with numbers that are not finite."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lioncub import DistributedLion, Lion, kernels, reference
from lioncub.errors import ConfigError, SparseGradientError
from tests.support.kernel_cases import same_bits

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
BODIES = [name for name, reason in kernels.bodies().items() if not reason]
SETTINGS: dict[str, Any] = {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.1, "memory": 0.3, "warmup": 5}


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
        optimizer = Lion([x], lr=1e-4, memory="constant", stochastic_rounding=noisy)
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
    optimizer = Lion([{"params": [p], "lr": 0.5}, {"params": [q, unused]}], lr=0.25, memory="constant")
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
        ({"stochastic_rounding": "yes"}, "stochastic_rounding"),
        ({"betas": 0.9}, "betas"),
        ({"lr": float("inf")}, "lr"),
        ({"weight_decay": float("inf")}, "weight_decay"),
        ({"maximize": "x"}, "maximize"),
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


def test_copies_and_pickles_go_on_training() -> None:
    params = parameters()
    optimizer = Lion(params, **SETTINGS, momentum_dtype=torch.bfloat16)
    give_gradients(params, 0)
    optimizer.step()
    for copied, other in (copy.deepcopy((params, optimizer)), pickle.loads(pickle.dumps((params, optimizer)))):
        for some, one in ((params, optimizer), (copied, other)):
            before = copy.deepcopy((some, one))
            give_gradients(some, 1)
            one.step()
            assert not any(torch.equal(a, b) for a, b in zip(some, before[0], strict=True))
        params, optimizer = copied, other
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))]})


def test_gradients_that_are_not_where_they_seem_to_be() -> None:
    """Zero tensors have no memory, a negated view has the wrong one, and a default device changes what ``empty`` is."""
    zero, negated = torch._efficientzerotensor(1000), torch._neg_view(torch.ones(1000))
    for make in (Lion, DistributedLion):
        p = nn.Parameter(torch.ones(1000))
        optimizer = make([p], lr=0.25, memory="constant")
        p.grad = zero
        optimizer.step()
        assert torch.equal(p, torch.ones(1000))
        p.grad = negated
        with torch.device("meta"):
            optimizer.step()
        assert torch.equal(p, torch.full((1000,), 1.25))


def test_a_gradient_that_is_the_parameter() -> None:
    p = nn.Parameter(torch.full((100,), 2.0))
    optimizer = Lion([p], lr=0.5, betas=(0.9, 0.5), memory="constant")
    p.grad = p.detach()
    optimizer.step()
    assert torch.equal(p, torch.full((100,), 1.5))
    assert torch.equal(optimizer.state[p]["exp_avg"], torch.ones(100))


def test_channels_last_needs_no_copy_and_changes_nothing() -> None:
    plain = nn.Parameter(torch.randn(8, 4, 3, 3))
    last = nn.Parameter(plain.detach().clone(memory_format=torch.channels_last))
    a, b = Lion([plain], **SETTINGS), Lion([last], **SETTINGS)
    for _ in range(3):
        plain.grad = torch.randn(8, 4, 3, 3)
        last.grad = plain.grad.to(memory_format=torch.channels_last)
        a.step()
        b.step()
    assert torch.equal(plain, last)
    assert torch.equal(a.state[plain]["exp_avg"], b.state[last]["exp_avg"])
    assert b.state[last]["exp_avg"].is_contiguous(memory_format=torch.channels_last)


def test_parameters_that_cannot_be_trained_are_refused() -> None:
    class DTensor(nn.Parameter):
        pass

    for param, says in (
        (nn.Parameter(torch.ones(3).to(torch.float8_e4m3fn), requires_grad=False), "float8"),
        (DTensor(torch.ones(3)), "DTensor"),
    ):
        for make in (Lion, DistributedLion):
            with pytest.raises(ConfigError, match=says):
                make([param])


def test_a_state_of_adamw_is_refused_even_before_its_first_step() -> None:
    params = parameters()
    with pytest.raises(ConfigError, match="another kind of optimizer"):
        Lion(params).load_state_dict(torch.optim.AdamW(params).state_dict())


def test_a_distributed_state_loads_without_its_codec() -> None:
    params = parameters()
    optimizer = Lion(params)
    optimizer.load_state_dict(DistributedLion(params, lr=0.5).state_dict())
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert "codec" not in optimizer.param_groups[0]


def test_a_momentum_that_somebody_made_half_precision() -> None:
    """State is the user's to change. float16 is slower than the two formats that have kernels, but no less right."""
    param = nn.Parameter(torch.ones(1000))
    param.grad = torch.ones(1000)
    optimizer = Lion([param], lr=0.1, memory="constant")
    optimizer.state[param]["exp_avg"] = optimizer.state[param]["exp_avg"].half()
    optimizer.step()
    assert torch.equal(param, torch.full((1000,), 1 - 0.1))
    assert torch.equal(optimizer.state[param]["exp_avg"], torch.full((1000,), 0.01).half())


@pytest.mark.parametrize(
    "settings",
    [
        *({"lr": "x"}, {"lr": None}, {"lr": 1j}, {"betas": ("a", "b")}, {"betas": (0.9, None)}, {"weight_decay": "x"}),
        *({"memory": "grown"}, {"memory": -1.0}, {"memory": float("inf")}, {"memory": None}, {"memory": True}),
        *({"warmup": -1}, {"warmup": 2.5}, {"warmup": "auto"}),
    ],
    ids=str,
)
def test_settings_that_are_not_numbers(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(settings))}=.*number"):
        Lion(parameters(), **settings)


def test_a_learning_rate_in_a_tensor() -> None:
    assert float(Lion(parameters(), lr=torch.tensor(0.5)).param_groups[0]["lr"]) == 0.5  # type: ignore[arg-type]
