"""Every method of the study against its paper: by hand, by its invariants, by its bits, and that it learns."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
import torch

from lioncub import reference
from lioncub.errors import ConfigError
from lioncub.tools.study.baselines import (
    DGC,
    EFSign,
    GlobalAdamW,
    GlobalLion,
    PowerSGD,
    Signum,
    TernGrad,
)
from lioncub.tools.study.method import Method
from tests.support.local_adamw import gradients_at
from tests.support.method_steps import check_repeatable, flat, mean_of, normal, step, zeros


@dataclass(frozen=True)
class Row:
    """A method, the rate at which it learns here, and its paper's bits per parameter up and down for n workers."""

    make: Callable[..., Method]
    lr: float
    bits_up: float
    bits_down: Callable[[int], float]
    overhead: Callable[[int, int], float] = lambda tensors, numel: 0.0
    """How many bits more it may be, of so many tensors and parameters."""


def scales(tensors: int, numel: int) -> float:
    """A float32 for each tensor, and the bits that fill the last byte."""
    return (32 * tensors + 8) / numel


def gaps(tensors: int, numel: int) -> float:
    """Where gaps are longer than a byte; a header; a tensor's share rounded to whole entries."""
    return 8 / 255 + (40 + 40 * tensors) / numel


MATRIX, BIAS = (200, 100), (50,)
RANK_4 = 32 * (4 * (200 + 100) + 50) / (200 * 100 + 50)
METHODS = {
    "global AdamW": Row(GlobalAdamW, 0.05, 32, lambda n: 32),
    "global AdamW, bfloat16": Row(partial(GlobalAdamW, precision="bfloat16"), 0.05, 16, lambda n: 16),
    "global Lion": Row(GlobalLion, 0.06, 32, lambda n: 32),
    "TernGrad": Row(TernGrad, 0.02, 1.6, lambda n: (2 * n).bit_length(), scales),
    "DGC": Row(DGC, 0.05, 0.04 * 40, lambda n: n * 0.04 * 40, gaps),
    "SIGNUM": Row(Signum, 0.04, 1, lambda n: 1, lambda tensors, numel: 8 / numel),
    "EF-sign": Row(EFSign, 0.01, 1, lambda n: 1, scales),
    "PowerSGD, AdamW": Row(partial(PowerSGD, betas=(0.9, 0.999)), 0.05, RANK_4, lambda n: RANK_4),
    "PowerSGD": Row(PowerSGD, 0.02, RANK_4, lambda n: RANK_4),
}
ROWS = pytest.mark.parametrize("row", METHODS.values(), ids=METHODS)


def follows(method: Method, other: torch.optim.Optimizer, weight_decay: float = 0.0) -> None:
    """Ten steps of ``method`` are those of ``other`` on the mean gradient."""
    params = other.param_groups[0]["params"]
    for param, own in zip(params, method.params, strict=True):
        own.copy_(param)
    for t in range(10):
        gradients = [normal(100 * t + worker) for worker in range(method.workers)]
        lr = 0.1 / (t + 1)
        step(method, gradients, lr)
        other.param_groups[0]["lr"] = lr
        for param, gradient in zip(params, mean_of(gradients), strict=True):
            param.mul_(1 - lr * weight_decay)
            param.grad = gradient
        other.step()
    torch.testing.assert_close(flat(method.params), flat(params), rtol=1e-5, atol=1e-5)


# ---- every method --------------------------------------------------------------------------------------------------


@ROWS
@pytest.mark.parametrize("workers", [1, 3, 8])
def test_bits_are_the_papers(row: Row, workers: int) -> None:
    method = row.make(zeros(MATRIX, BIAS), workers, weight_decay=0.0)
    gradients = [normal(worker, MATRIX, BIAS) for worker in range(workers)]
    for _ in range(3):
        sent, came_back = step(method, gradients, 0.01)
        overhead = row.overhead(2, method.numel) + 1e-9
        for num_bytes in sent:
            assert abs(8 * num_bytes / method.numel - row.bits_up) <= overhead
        figure, bits = row.bits_down(workers), 8 * came_back / method.numel
        if isinstance(method, DGC):
            assert row.bits_up - overhead <= bits <= figure + workers * overhead, "the union of what was sent"
        else:
            assert abs(bits - figure) <= overhead


@ROWS
def test_same_seed_same_bits_and_no_gradient_is_changed(row: Row) -> None:
    check_repeatable(lambda: row.make(normal(0), 3, weight_decay=0.1, seed=5), gradients_at)


@ROWS
def test_weight_decay_is_decoupled(row: Row) -> None:
    """Of untouched parameters, what is not decay is what an optimizer without decay does."""
    with_decay, without = row.make(normal(1), 2, weight_decay=0.5), row.make(normal(1), 2, weight_decay=0.0)
    gradients = [normal(2), normal(3)]
    step(with_decay, gradients, 0.1)
    step(without, gradients, 0.1)
    torch.testing.assert_close(flat(without.params) - flat(with_decay.params), 0.05 * flat(normal(1)))


@ROWS
def test_it_learns(row: Row) -> None:
    """min ½‖x - c‖² from noisy gradients, with a rate that falls to zero."""
    target = normal(7)
    method = row.make(zeros(), 4, weight_decay=0.0)
    for t in range(300):
        gradients = [
            [x - c + 0.2 * noise for x, c, noise in zip(method.params, target, normal(1000 + 4 * t + i), strict=True)]
            for i in range(4)
        ]
        step(method, gradients, row.lr * (1 - t / 300))
    left = (flat(method.params) - flat(target)).square().sum() / flat(target).square().sum()
    assert left < (0.02 if isinstance(method, Signum) else 0.002), "a momentum of 100 steps swings longer"


@pytest.mark.parametrize("make", [Signum, DGC])
def test_a_worker_knows_of_others_what_came_back(make: Callable[..., Method]) -> None:
    """Once all have sent, what they have for themselves does not matter to the move."""
    method = make(zeros(), 3, weight_decay=0.0)
    for worker in range(3):
        method.send(worker, normal(worker))
    forgetful = copy.deepcopy(method)
    for name in ("m", "u", "v"):
        for buffer in getattr(forgetful, name, ()):
            buffer.fill_(float("nan"))
    assert method.move(0.1) == forgetful.move(0.1)
    assert torch.equal(flat(method.params), flat(forgetful.params))
    assert flat(method.params).count_nonzero()


# ---- full precision ------------------------------------------------------------------------------------------------


def test_global_adamw_is_torchs() -> None:
    params = normal(1)
    other = torch.optim.AdamW(params, weight_decay=0.3)
    follows(GlobalAdamW(zeros(), 3, weight_decay=0.3), other)


def test_bfloat16_rounds_each_gradient_and_their_sum() -> None:
    method = GlobalAdamW(normal(1), 3, weight_decay=0.3, precision="bfloat16")
    exact = GlobalAdamW(normal(1), 1, weight_decay=0.3)
    for t in range(5):
        gradients = [normal(10 * t + worker) for worker in range(3)]
        step(method, gradients, 0.1)
        rounded = [flat(gradient).bfloat16().float() for gradient in gradients]
        mean = (rounded[0] + rounded[1] + rounded[2]).bfloat16().float() / 3
        parts = mean.split([param.numel() for param in exact.params])
        step(exact, [[part.view_as(param) for part, param in zip(parts, exact.params, strict=True)]], 0.1)
        assert torch.equal(flat(method.params), flat(exact.params))


def test_global_lion_is_the_references() -> None:
    method = GlobalLion(normal(1), 3, weight_decay=0.3)
    x, m = flat(normal(1)), torch.zeros(1, method.numel)
    for t in range(10):
        gradients = [normal(10 * t + worker) for worker in range(3)]
        step(method, gradients, 0.1)
        g = reference.rank_order_sum(torch.stack([flat(gradient) for gradient in gradients])) / 3
        x, m = reference.lion_step(x, m, g[None], t, reference.vote, lr=0.1, betas=(0.9, 0.99), weight_decay=0.3)
        assert torch.equal(flat(method.params), x)


# ---- SIGNUM --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 8])
def test_signum_is_the_references_vote_on_momenta(workers: int) -> None:
    method = Signum(zeros(), workers, weight_decay=0.0)
    x, m = torch.zeros(method.numel), torch.zeros(workers, method.numel)
    for t in range(6):
        gradients = [normal(10 * t + worker) for worker in range(workers)]
        for gradient in gradients:
            gradient[1].zero_()  # never touched: its momentum is zero
        step(method, gradients, 0.5)
        m = m * 0.99 + torch.stack([flat(gradient) for gradient in gradients]) * 0.01
        x = x - 0.5 * reference.vote(m, t, range(workers))
        torch.testing.assert_close(flat(method.params), x)


def test_signum_alone_is_the_sign_of_its_momentum() -> None:
    method = Signum(zeros((3,)), 1, weight_decay=0.0)
    step(method, [[torch.tensor([1.0, -5.0, 2.0])]])
    assert method.params[0].tolist() == [-1, 1, -1]
    step(method, [[torch.tensor([-0.5, 1.0, -9.0])]])  # m = 0.0099 - 0.005, ..., 0.0198 - 0.09
    assert method.params[0].tolist() == [-2, 2, 0]


# ---- TernGrad ------------------------------------------------------------------------------------------------------


def test_terngrad_by_hand() -> None:
    """Entries of 0 and ±s leave nothing to chance; with a shared scale of 4, entries of ±4 neither."""
    method = TernGrad(zeros((4,), (2,)), 2, weight_decay=0.0)
    first = [torch.tensor([4.0, -4.0, 0.0, 4.0]), torch.tensor([0.0, 1.0])]
    second = [torch.tensor([4.0, 4.0, 0.0, 0.0]), torch.zeros(2)]
    assert step(method, [first, second]) == ([8 + 2, 8 + 2], 8 + 3), "2 scales, 6 trits; 6 sums of 3 bits"
    assert torch.equal(flat(method.params), -torch.tensor([4, 0, 0, 2, 0, 0.5]))
    step(method, [zeros((4,), (2,))] * 2)
    torch.testing.assert_close(flat(method.params), -1.9 * torch.tensor([4, 0, 0, 2, 0, 0.5]))


def test_terngrad_cuts_at_two_and_a_half_sigmas() -> None:
    method = TernGrad(zeros((100,), (1,)), 1, weight_decay=0.0)
    gradient = torch.zeros(100)
    gradient[3] = 10  # σ = 1
    step(method, [[gradient, torch.tensor([7.0])]])
    assert method.params[0].count_nonzero() == 1
    assert method.params[0][3] == -2.5
    assert method.params[1].item() == -7, "one entry is not cut"


def test_terngrad_is_unbiased() -> None:
    gradients = [normal(i, (20,)) for i in range(4)]
    method = TernGrad(zeros((20,)), 4, weight_decay=0.0, momentum=0.0, clip_sigmas=100)
    rounds = 1000
    for _ in range(rounds):
        step(method, gradients, 1 / rounds)
    scale = flat([flat(gradient) for gradient in gradients]).abs().max()
    error = -method.params[0] - mean_of(gradients)[0]
    assert error.abs().max() < 4 * (scale / 2) / (rounds * 4) ** 0.5, "4σ; a draw of -s, 0, s has σ ≤ s/2"
    other = TernGrad(zeros((20,)), 4, weight_decay=0.0, seed=1)
    once = TernGrad(zeros((20,)), 4, weight_decay=0.0, seed=0)
    step(other, gradients)
    step(once, gradients)
    assert not torch.equal(other.params[0], once.params[0]), "another seed, other chances"


def test_terngrads_workers_draw_for_themselves() -> None:
    method = TernGrad(zeros((500,)), 2, weight_decay=0.0)
    ramp = torch.linspace(0, 1, 500)
    step(method, [[ramp], [ramp]])
    found = set((-method.params[0]).tolist())
    assert found == {0.0, 0.5, 1.0}, "one of two says 1, the other 0"


# ---- DGC -----------------------------------------------------------------------------------------------------------


def test_dgc_that_drops_nothing_is_momentum_sgd() -> None:
    params = normal(1)
    method = DGC(zeros(), 3, weight_decay=0.2, sparsity=0, clip=None, factor_masking=False)
    follows(method, torch.optim.SGD(params, momentum=0.9), weight_decay=0.2)


def test_dgc_by_hand() -> None:
    method = DGC(zeros((4,)), 1, weight_decay=0.0, sparsity=0.75, clip=None)
    step(method, [[torch.tensor([1.0, -3.0, 2.0, 0.0])]])
    assert method.params[0].tolist() == [0, 3, 0, 0]
    assert method.u[0].tolist() == [1, 0, 2, 0], "momentum is masked where it was sent"
    assert method.v[0].tolist() == [1, 0, 2, 0]
    step(method, [[torch.tensor([0.0, 1.0, 0.0, 0.0])]])  # v = 1 + 0.9, 1, 2 + 1.8, 0
    torch.testing.assert_close(method.params[0], torch.tensor([0, 3, -3.8, 0]))
    torch.testing.assert_close(method.u[0], torch.tensor([0.9, 1, 0, 0]))
    torch.testing.assert_close(method.v[0], torch.tensor([1.9, 1, 0, 0]))


def test_dgc_clips_to_its_share_of_the_norm() -> None:
    """Four workers, clip 1: a share of the gradient g/4 may have norm 4^-1/2 = 0.5."""
    method = DGC(zeros((2,)), 4, weight_decay=0.0, sparsity=0, clip=1.0)
    within, beyond = [torch.tensor([0.6, 0.8])], [torch.tensor([30.0, -40.0])]
    step(method, [within, beyond, within, [torch.zeros(2)]])
    torch.testing.assert_close(-method.params[0], torch.tensor([0.15 + 0.3 + 0.15, 0.2 - 0.4 + 0.2]))


def test_dgc_warms_up() -> None:
    method = DGC(zeros((800,)), 1, weight_decay=0.0, warmup_steps=4)
    densities = []
    for t in range(6):
        densities.append(method.density)
        before = method.params[0].clone()
        step(method, [normal(t, (800,))])
        assert (method.params[0] != before).sum() == round(800 * method.densities[min(t // 2, 2)])
    assert densities == pytest.approx([0.25, 0.25, 0.0625, 0.0625, 0.04, 0.04])
    steep = DGC(zeros((8,)), 1, weight_decay=0.0, sparsity=0.999)
    assert steep.densities == pytest.approx([0.25, 0.0625, 0.015625, 0.00390625, 0.001])
    with pytest.raises(ConfigError, match="sparsity=1"):
        DGC(zeros(), 1, weight_decay=0.0, sparsity=1)


def test_dgc_selects_tensor_by_tensor() -> None:
    method = DGC(zeros((50,), (50,)), 1, weight_decay=0.0)
    step(method, [[100 * normal(1, (50,))[0], 0.01 * normal(2, (50,))[0]]])
    assert [int(param.count_nonzero()) for param in method.params] == [2, 2]


def test_dgc_loses_nothing() -> None:
    """Without masking, what was sent and what is kept are the sum of all momenta."""
    method = DGC(zeros(), 2, weight_decay=0.0, clip=None, factor_masking=False)
    momenta, total = torch.zeros(2, method.numel), torch.zeros(method.numel)
    for t in range(20):
        gradients = [normal(2 * t), normal(2 * t + 1)]
        step(method, gradients)
        momenta = momenta * 0.9 + torch.stack([flat(gradient) for gradient in gradients]) / 2
        total += momenta.sum(0)
    torch.testing.assert_close(method.v[0] + method.v[1] - flat(method.params), total, rtol=1e-4, atol=1e-4)


# ---- EF-sign -------------------------------------------------------------------------------------------------------


def test_ef_sign_by_hand() -> None:
    method = EFSign(zeros((2,)), 1, weight_decay=0.0, momentum=0.0)
    step(method, [[torch.tensor([3.0, -1.0])]], 0.5)  # p = 1.5, -0.5: scale 1
    assert method.params[0].tolist() == [-1, 1]
    assert method.errors[0].tolist() == [0.5, 0.5]
    assert method.server_error.tolist() == [0, 0], "what is ± one scale is sent exactly"
    step(method, [[torch.tensor([1.0, 1.0])]], 0.25)  # p = 0.75, 0.75
    assert method.params[0].tolist() == [-1.75, 0.25]
    assert method.errors[0].tolist() == [0, 0]


def test_ef_signs_momentum_looks_ahead() -> None:
    method = EFSign(zeros(()), 1, weight_decay=0.0)  # one entry is sent exactly
    step(method, [[torch.tensor(1.0)]])  # m = 1, β·m + g
    assert method.params[0].item() == pytest.approx(-1.9)
    step(method, [[torch.tensor(0.0)]])  # m = 0.9
    assert method.params[0].item() == pytest.approx(-1.9 - 0.81)


def test_ef_sign_loses_nothing() -> None:
    """Whatever the rate does: the way gone and all errors are the way that full precision would have gone."""
    method = EFSign(zeros(), 3, weight_decay=0.0)
    momenta, total = torch.zeros(3, method.numel), torch.zeros(method.numel)
    for t in range(20):
        gradients = [normal(3 * t + worker) for worker in range(3)]
        lr = t % 4 * 0.1
        step(method, gradients, lr)
        g = torch.stack([flat(gradient) for gradient in gradients])
        momenta = momenta * 0.9 + g
        total += lr * (momenta * 0.9 + g).mean(0)
    kept = torch.stack(method.errors).mean(0) + method.server_error
    torch.testing.assert_close(kept - flat(method.params), total, rtol=1e-4, atol=1e-4)


# ---- PowerSGD ------------------------------------------------------------------------------------------------------


def test_powersgd_of_full_rank_is_momentum_sgd() -> None:
    params = normal(1)
    method = PowerSGD(zeros(), 1, weight_decay=0.2, rank=6)
    follows(method, torch.optim.SGD(params, momentum=0.9), weight_decay=0.2)
    assert method.errors[0].abs().max() < 1e-5
    follows(PowerSGD(zeros(), 3, weight_decay=0.0, rank=6), torch.optim.SGD(normal(1), momentum=0.9))


def test_powersgd_of_full_rank_with_betas_is_adamw() -> None:
    other = torch.optim.AdamW(normal(1), weight_decay=0.2, betas=(0.8, 0.9))
    follows(PowerSGD(zeros(), 2, weight_decay=0.2, rank=6, betas=(0.8, 0.9)), other)


def test_powersgd_finds_a_matrix_of_its_rank() -> None:
    left, right = normal(3, (8, 2), (2, 12))
    method = PowerSGD(zeros((8, 12)), 2, weight_decay=0.0, rank=2)
    step(method, [[left @ right], [2 * left @ right]])
    torch.testing.assert_close(-method.params[0], 1.5 * left @ right)


def test_powersgd_projects_on_the_space_that_the_last_step_found() -> None:
    method = PowerSGD(zeros((5, 4)), 1, weight_decay=0.0, rank=2, momentum=0.0)
    (gradient,) = normal(3, (5, 4))
    start = method.q[0]
    for _ in range(2):
        m = gradient + method.errors[0].view(5, 4)
        basis = torch.linalg.qr(m @ start)[0]
        before = method.params[0].clone()
        step(method, [[gradient]])
        torch.testing.assert_close(before - method.params[0], basis @ basis.T @ m)
        torch.testing.assert_close(method.q[0], m.T @ basis)
        start = method.q[0]


def test_powersgd_loses_nothing_on_the_whole_and_sends_vectors_as_they_are() -> None:
    method = PowerSGD(zeros(), 3, weight_decay=0.0, rank=1, momentum=0.0)
    total = torch.zeros(method.numel)
    for t in range(20):
        gradients = [normal(3 * t + worker) for worker in range(3)]
        step(method, gradients)
        total += flat(mean_of(gradients))
    kept = torch.stack(method.errors).mean(0)
    assert kept[24:30].tolist() == [0] * 6
    torch.testing.assert_close(kept - flat(method.params), total, rtol=1e-4, atol=1e-4)
    with pytest.raises(ConfigError, match="rank=0"):
        PowerSGD(zeros(), 1, weight_decay=0.0, rank=0)


@pytest.mark.parametrize("shapes", [((5,),), ((4, 3),)], ids=["vectors", "matrices"])
def test_powersgd_of_one_kind_only_and_after_a_gradient_of_zero(shapes: tuple[tuple[int, ...], ...]) -> None:
    method = PowerSGD(zeros(*shapes), 1, weight_decay=0.0, rank=3)
    step(method, [zeros(*shapes)])
    gradient = normal(1, *shapes)
    gradient[0][0] = 0
    step(method, [gradient])
    torch.testing.assert_close(-flat(method.params), flat(gradient), rtol=1e-3, atol=1e-3)
