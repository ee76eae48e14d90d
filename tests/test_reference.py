"""The oracle itself, against figures worked out by hand and against the papers' statements."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lioncub import reference


def row(*values: float) -> Tensor:
    return torch.tensor([values])


def test_lion_by_hand() -> None:
    x, m = reference.lion_step(
        torch.tensor([1.0, -2.0, 0.5]),
        row(0.0, 1.0, 0.0),
        row(2.0, -1.0, 0.0),
        0,
        reference.vote,
        lr=0.1,
        betas=(0.9, 0.99),
        weight_decay=0.5,
    )
    torch.testing.assert_close(x, torch.tensor([0.95 - 0.1, -1.9 - 0.1, 0.475]))
    torch.testing.assert_close(m, row(0.02, 0.98, 0.0))


def test_majority_and_average() -> None:
    u = torch.tensor([[1.0, 1, -1], [2, -1, -1], [-1, -3, -1]])
    assert reference.vote(u, 0, range(3)).tolist() == [1, -1, -1]
    torch.testing.assert_close(reference.mean(u, 0, range(3)), torch.tensor([1 / 3, -1 / 3, -1]))


@pytest.mark.parametrize("t", range(8))
def test_a_tie_goes_to_voter_t_mod_v(t: int) -> None:
    u = torch.eye(4) * 2 - 1  # voter i says + on coordinate i, - elsewhere
    u[:, 0] = torch.tensor([1.0, 1, -1, -1])
    voters = [0, 1, 2, 3]
    assert reference.vote(u, t, voters)[0] == u[t % 4, 0]
    assert reference.vote(u, t, voters, ties="zero")[0] == 0
    assert reference.vote(u, t, [0, 2, 3])[0] == -1, "three voters cannot tie"
    assert reference.vote(u, t, [1, 2])[0] == u[[1, 2][t % 2], 0], "voters count in rank order, not by rank"


def test_an_untouched_weight_moves_by_one_lr_and_comes_back() -> None:
    x, m = torch.zeros(6), torch.zeros(3, 6)
    for t in range(10):
        x, m = reference.lion_step(
            x, m, torch.zeros(3, 6), t, reference.vote, lr=0.1, betas=(0.9, 0.99), weight_decay=0.0
        )
        assert x.abs().max() <= 0.1 + 1e-6
    assert x.abs().max() < 1e-6


def test_abstaining_zeros_never_move() -> None:
    u = torch.tensor([[0.0, 0, 1], [0, 1, -1]])
    for t in range(4):
        direction = reference.vote(u, t, [0, 1], zeros="abstain")
        assert direction[0] == 0
        assert direction[1] == 1, "one vote is a majority of one"
        assert direction[2] == u[t % 2, 2]


def test_grids_by_hand() -> None:
    u = torch.tensor([4.0, -2.0, 1.0, -0.5, 0.5, 0.0])  # mean|u| = 8/6
    mean = 8 / 6
    assert reference.magnitude_scale(u, "l1").item() == pytest.approx(mean)
    # 4 bits, L = 8: ⌊|u|/mean · 4⌋ = 12 → 7, 6, 3, 1, 1; zero is the smallest magnitude, here with sign (5 + t) odd → +
    assert reference.quantise(u, 0, 4, "l1", "midrise").tolist() == [15, -13, 7, -3, 3, 1]
    assert reference.quantise(u, 1, 4, "l1", "midrise").tolist() == [15, -13, 7, -3, 3, -1]
    # s = 7: round(|u|/mean · 3.5) = 10.5 → 7, 5.25 → 5, 2.625 → 3, 1.3 → 1
    assert reference.quantise(u, 0, 4, "l1", "midtread").tolist() == [7, -5, 3, -1, 1, 0]
    # ratios 3, 1.5, .75, .375: ⌊log2⌋ + 1 = 2, 1, 0, -1 → 0
    assert reference.quantise(u, 0, 4, "l1", "log").tolist() == [4, -2, 1, -1, 1, 1]
    # base 8, two levels: at least the mean, or not
    assert reference.quantise(u, 0, 2, "l1", "log").tolist() == [8, -8, 1, -1, 1, 1]
    # three levels below the mean: ⌊log2⌋ + 4 = 5, 4, 3, 2; zero is the lowest
    assert reference.quantise(u, 0, 4, "l1", "float").tolist() == [32, -16, 8, -4, 4, 1]
    # base 4, one level below: 3 and 1.5 are in [1, 4), the others in [1/4, 1)
    assert reference.quantise(u, 0, 3, "l1", "float").tolist() == [16, -16, 4, -4, 4, 1]
    # L∞: max|u| is the top of every grid
    assert reference.quantise(u, 0, 4, "linf", "midtread").tolist() == [7, -4, 2, -1, 1, 0]
    assert reference.quantise(u, 0, 4, "linf", "midrise").tolist() == [15, -9, 5, -3, 3, 1]
    assert reference.quantise(u, 0, 4, "linf", "log").tolist() == [128, -64, 32, -16, 16, 1]


def test_l1_keeps_what_linf_rounds_away() -> None:
    """The papers' check: Student-t noise, n = 8; the L∞ grid loses nearly everything, L1 keeps the sign."""
    torch.manual_seed(0)
    u = torch.distributions.StudentT(1.0).sample((8, 20_000)) + 0.1
    exact = torch.sign(u.sum(0))

    def agreement(bits: int, scale: str, grid: str) -> float:
        found = reference.levels(u, 0, range(8), bits=bits, scale=scale, grid=grid)
        return (found == exact).float().mean().item()

    assert agreement(8, "linf", "midtread") < 0.1
    assert agreement(8, "l1", "midtread") > 0.6


def test_range_of_the_summing_allreduce() -> None:
    assert reference.summed_max_level(8, 1) == 127
    assert reference.summed_max_level(8, 127) == 1
    assert reference.summed_max_level(8, 128) == 0, "the known bug: every update silently zero; construction refuses it"
    for bits in range(2, 9):
        for n in range(1, 130):
            s = reference.summed_max_level(bits, n)
            assert 2 * n * s < 2**bits, "no carry may cross into the neighbour"


def test_momentum_average_is_the_same_row_everywhere() -> None:
    m = torch.randn(4, 100)
    averaged = reference.synchronize_momentum(m, torch.float32)
    torch.testing.assert_close(averaged, m.mean(0).expand(4, 100))
    half = reference.synchronize_momentum(m, torch.bfloat16)
    assert torch.equal(half, half[:1].expand(4, 100))
    torch.testing.assert_close(half, averaged, atol=0.02, rtol=0.02)


def test_the_box_of_the_theory() -> None:
    """min f subject to ‖λx‖∞ ≤ 1: outside, the distance shrinks by (1 - lr·λ) a step; inside, x stays."""
    torch.manual_seed(0)
    lr, decay = 0.01, 2.0
    x, m = torch.randn(50) * 5, torch.zeros(4, 50)
    for t in range(600):
        before = (decay * x.abs() - 1).clamp(min=0)
        x, m = reference.lion_step(
            x, m, torch.randn(4, 50), t, reference.vote, lr=lr, betas=(0.9, 0.99), weight_decay=decay
        )
        after = (decay * x.abs() - 1).clamp(min=0)
        assert (after <= (1 - lr * decay) * before + 1e-5).all()
    assert (decay * x.abs()).max() <= 1 + 1e-5


def test_hierarchical_averages_inside_and_votes_between() -> None:
    u = torch.tensor([[3.0, 1], [-1, 1], [-1, -1], [-1, -1]])
    direction = reference.hierarchical(u, 1, range(4), per_node=2, combine=reference.vote)
    assert direction.tolist() == [-1, -1], "one node each way; node 1 casts at t = 1"
    assert reference.hierarchical(u, 1, [0, 1], per_node=2, combine=reference.vote).tolist() == [1, 1]
