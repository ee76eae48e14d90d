"""Workers whose gradients, votes or memory are bad, and workers without data."""

from __future__ import annotations

import random
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from lioncub import DistributedLion, MomentumSync, Vote, checkpoint
from lioncub.errors import LionCubError, ReplicasDifferError
from tests.support.checkpointing import listing
from tests.support.cluster import Cluster
from tests.support.seeds import chance
from tests.support.small_model import loss_of, make_model, weights
from tests.support.tiers import counts


def _same_everywhere(model: nn.Module, group: dist.ProcessGroup) -> bool:
    mine = weights(model)
    all_of_them = [torch.empty_like(mine) for _ in range(group.size())]
    dist.all_gather(all_of_them, mine, group=group)
    return all(torch.equal(mine, other) for other in all_of_them)


def _flips(rank: int, group: dist.ProcessGroup, seed: int, flips: int) -> list[tuple[int, tuple[int, ...], int]]:
    """A bit of some worker's parameters flips, again and again: (victim, who was repaired, after how many steps).

    A number's lowest bits go when an update carries it over a power of two. A flip that rounding took back before
    the replicas were compared leaves them the same to the bit: there was nothing to find, and it is not counted.
    """
    model, numbers = make_model(), random.Random(seed)
    found: list[tuple[int, tuple[int, ...], int]] = []
    optimizer = DistributedLion(model.named_parameters(), 1e-3, process_group=group, repair=True)
    params, step, taken_back = list(model.parameters()), 0, 0
    while len(found) < flips:
        victim, param = numbers.randrange(group.size()), numbers.choice(params)
        element, bit = numbers.randrange(param.numel()), numbers.randrange(32)
        if rank == victim:
            param.data.view(-1).view(torch.int32)[element] ^= (1 << bit) - (bit == 31) * 2**32
        start = step
        while step < start + 65:
            optimizer.zero_grad()
            loss_of(model, rank, step).backward()
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                optimizer.step()
            step += 1
            if optimizer.stats.repaired:
                assert f"of worker {victim} were not those of the others" in str(said[0].message)
                break
        if not optimizer.stats.repaired and _same_everywhere(model, group):
            taken_back += 1
            assert taken_back <= flips // 5, "rounding takes back few flips"
            continue
        found.append((victim, optimizer.stats.repaired, step - start))
    return found


@counts("flips", fast=10, full=100)
def test_every_flipped_bit_is_found_named_and_mended_within_64_steps(cluster: Cluster, flips: int) -> None:
    seed = chance("flips").randrange(2**31)
    results = cluster.run(3, _flips, seed, flips)
    assert results[0] == results[1] == results[2]
    for victim, repaired, waited in results[0]:
        assert repaired == (victim,)
        assert waited <= 64


def _two_sides(rank: int, group: dist.ProcessGroup) -> str:
    model = make_model()
    optimizer = DistributedLion(model.named_parameters(), 1e-3, process_group=group, repair=True)
    if rank == 0:
        next(iter(model.parameters())).data.add_(1)
    for step in range(64):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        try:
            optimizer.step()
        except ReplicasDifferError as problem:
            return str(problem)
    return ""


def _saves_with_a_flip(rank: int, group: dist.ProcessGroup, folder: str) -> list[str]:
    model = make_model()
    for param in list(model.parameters())[:1]:
        param.requires_grad_(False)  # what is not trained is saved, too
    optimizer = DistributedLion(model.named_parameters(), 1e-3, process_group=group)
    checkpoint.save(folder, model, optimizer, 1)
    said = []
    for frozen in (True, False):
        victim = list(model.parameters())[0 if frozen else 1]
        saved = victim.detach().clone()
        if rank == 0:
            victim.data.view(-1)[0] += 1
        try:
            checkpoint.save(folder, model, optimizer, 2)
        except ReplicasDifferError as problem:
            said.append(f"{problem.ranks} {problem}")
        victim.data.copy_(saved)
    checkpoint.save(folder, model, optimizer, 3)
    return said


def test_a_checkpoint_of_replicas_that_differ_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    for said in cluster.run(3, _saves_with_a_flip, str(tmp_path)):
        assert len(said) == 2
        assert all(text.startswith("(0,) the parameters of worker 0 are not those of the others") for text in said)
    assert listing(tmp_path) == ["step-0000000001", "step-0000000003"]


def _two_at_once(rank: int, group: dist.ProcessGroup) -> tuple[int, ...]:
    model = make_model()
    optimizer = DistributedLion(model.named_parameters(), 1e-3, process_group=group, repair=True)
    params = list(model.parameters())
    if rank in (1, 2):
        params[-rank].data.view(-1)[0] += 1
    for step in range(65):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer.step()
        if optimizer.stats.repaired:
            assert _same_everywhere(model, group)
            return optimizer.stats.repaired
    return ()


def test_two_workers_that_differ_are_repaired_together(cluster: Cluster) -> None:
    assert cluster.run(5, _two_at_once) == [(1, 2)] * 5


def _frozen_differ(rank: int, group: dist.ProcessGroup) -> str:
    model = make_model()
    first = next(iter(model.parameters())).requires_grad_(False)
    first.data += rank == 1
    try:
        DistributedLion(model.named_parameters(), 1e-3, process_group=group)
    except ReplicasDifferError as problem:
        return str(problem)
    return ""


def test_frozen_parameters_must_be_the_same_at_the_start(cluster: Cluster) -> None:
    assert all("of worker 1 are not those of worker 0" in said for said in cluster.run(3, _frozen_differ))


def test_without_a_majority_all_workers_stop(cluster: Cluster) -> None:
    said = cluster.run(2, _two_sides)
    assert all("are not the same" in text for text in said)


class _Ragged(nn.Module):
    """A model with a tensor that nobody has gradients for, and one that only some workers touch."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.body = nn.Linear(10, 3)
        self.sometimes = nn.Linear(10, 3)
        self.never = nn.Parameter(torch.randn(7))

    def forward(self, x: Tensor, *, all_of_it: bool) -> Tensor:
        out: Tensor = self.body(x)
        return out + self.sometimes(x) if all_of_it else out


def _faulty(rank: int, group: dist.ProcessGroup, seed: int, steps: int) -> tuple[Tensor, Tensor, int]:
    model, common, own = _Ragged(), random.Random(seed), random.Random(seed + 1 + rank)
    sync = MomentumSync(every=8)
    optimizer = DistributedLion(
        model.named_parameters(), 1e-2, process_group=group, overlap=False, momentum_sync=sync, bucket_numel=20
    )
    start, abstained = model.never.detach().clone(), 0
    for step in range(steps):
        generator = torch.Generator().manual_seed(1000 * step + rank)
        x = torch.randn(8, 10, generator=generator)
        optimizer.zero_grad()
        model(x, all_of_it=own.random() < 0.5).square().mean().backward()
        healthy = common.randrange(group.size())  # one worker at least must have something to say
        kind = own.choice(["nan", "inf", "none", "zero", "fine", "fine"]) if rank != healthy else "fine"
        for param in model.parameters():
            if param.grad is None:
                continue
            if kind == "none":
                param.grad = None
            elif kind != "fine" and own.random() < 0.5:
                param.grad.fill_({"nan": float("nan"), "inf": float("inf"), "zero": 0.0}[kind])
        optimizer.step()
        abstained += len(optimizer.stats.abstentions)
        state = [*model.parameters(), *(optimizer.state[param]["exp_avg"] for param in model.parameters())]
        assert all(bool(tensor.isfinite().all()) for tensor in state), f"after step {step}"
    momenta = torch.cat([optimizer.state[param]["exp_avg"].view(-1) for param in model.parameters()])
    assert bool(momenta.isfinite().all())
    assert torch.equal(model.never.detach(), start), "what nobody has a gradient for keeps its bits"
    return weights(model), momenta, abstained


@counts("steps", fast=60, full=500)
def test_bad_gradients_leave_nothing_behind(cluster: Cluster, steps: int) -> None:
    seed = chance("gradients").randrange(2**31)
    results = cluster.run(4, _faulty, seed, steps)
    for found, _, abstained in results:
        assert torch.equal(found, results[0][0])
        assert bool(found.isfinite().all())
        assert abstained > steps // 4
    assert not torch.equal(results[0][1], results[1][1]), "momenta are each worker's own"


def _uneven(rank: int, group: dist.ProcessGroup, overlap: bool) -> tuple[Tensor, int, Tensor]:
    model = make_model()
    optimizer = DistributedLion(model.named_parameters(), 1e-2, process_group=group, overlap=overlap)
    for step in range(5 + 3 * rank):  # every worker has another number of batches
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
    momentum = optimizer.state[next(iter(model.parameters()))]["exp_avg"].clone()
    rounds = 0
    while optimizer.abstain():
        rounds += 1
        assert optimizer.stats.voters == group.size() - len(optimizer.stats.abstentions)
        assert rank in optimizer.stats.abstentions
    assert torch.equal(optimizer.state[next(iter(model.parameters()))]["exp_avg"], momentum)
    return weights(model), rounds, momentum


@pytest.mark.parametrize("overlap", [True, False])
def test_workers_without_data_abstain_until_all_are_done(cluster: Cluster, overlap: bool) -> None:
    results = cluster.run(3, _uneven, overlap)
    assert [rounds for _, rounds, _ in results] == [6, 3, 0]
    assert all(torch.equal(found, results[0][0]) for found, _, _ in results)


def _abstains_after_backward(rank: int, group: dist.ProcessGroup) -> str:
    model = make_model()
    optimizer = DistributedLion(model.named_parameters(), 1e-2, process_group=group)
    loss_of(model, rank, 0).backward()
    try:
        optimizer.abstain()
    except LionCubError as problem:
        optimizer.zero_grad()
        return str(problem)
    return ""


def test_abstaining_after_backward_is_an_error(cluster: Cluster) -> None:
    assert all("zero_grad()" in text for text in cluster.run(2, _abstains_after_backward))


def _one_votes_at_random(rank: int, group: dist.ProcessGroup, faulty: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    model = make_model()
    optimizer = DistributedLion(model.named_parameters(), 1e-3, codec=Vote(), process_group=group, overlap=False)
    for step in range(80):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        if rank == faulty:
            for param in model.parameters():
                param.grad = torch.randn(param.shape, generator=torch.Generator().manual_seed(step))
        optimizer.step()
    return optimizer.stats.suspects, optimizer.stats.agreements


@pytest.mark.parametrize("faulty", [-1, 2])
def test_a_worker_that_votes_at_random_is_suspected_by_all(cluster: Cluster, faulty: int) -> None:
    results = cluster.run(4, _one_votes_at_random, faulty)
    for suspects, agreements in results:
        assert suspects == ((faulty,) if faulty >= 0 else ())
        assert agreements == results[0][1]
