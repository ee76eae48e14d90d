"""Gradients that are accumulated, changed, missing, zero or broken, on real workers."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from lioncub import (
    DistributedLion,
    Levels,
    Mean,
    MomentumSync,
    Vote,
)
from lioncub.errors import AgreementError, GradientChangedError, QuorumError
from lioncub.wire.consensus import changed_message
from tests.support.cluster import Cluster
from tests.support.small_model import loss_of, make_model, weights


def _accumulate(rank: int, group: dist.ProcessGroup, pieces: int, overlap: bool) -> Tensor:
    model = make_model().double()
    optimizer = DistributedLion(model.parameters(), 1e-2, process_group=group, overlap=overlap, bucket_numel=300)
    for step in range(4):
        optimizer.zero_grad()
        x = torch.randn(12, 10, generator=torch.Generator().manual_seed(10 * step + rank)).double()
        *early, last = x.chunk(pieces)
        with optimizer.no_sync():
            for chunk in early:
                (model(chunk).square().sum() / 12).backward()
        (model(last).square().sum() / 12).backward()
        optimizer.step()
    return weights(model)


@pytest.mark.parametrize("overlap", [True, False])
def test_accumulation_equals_one_large_batch(cluster: Cluster, overlap: bool) -> None:
    whole = cluster.run(3, _accumulate, 1, overlap)[0]
    pieces = cluster.run(3, _accumulate, 4, overlap)
    assert all(torch.equal(result, whole) for result in pieces)


def _tamper(rank: int, group: dist.ProcessGroup, how: str, overlap: bool) -> str:
    model = make_model()
    optimizer = DistributedLion(model.named_parameters(), 1e-2, process_group=group, overlap=overlap, bucket_numel=300)
    before, last = weights(model), list(model.parameters())[-1]  # the last parameter is the first to be sent
    try:
        loss_of(model, rank, 0).backward()
        if how == "clip":
            nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        elif how == "data":
            last.grad.data.clamp_(-1e-3, 1e-3)  # type: ignore[union-attr]
        elif how == "replace":
            for p in model.parameters():
                p.grad = p.grad * 2 if p.grad is not None else None
        elif how == "remove":
            last.grad = None
        elif how == "again":
            loss_of(model, rank, 1).backward()
        optimizer.step()
    except GradientChangedError as problem:
        assert "overlap=False" in str(problem)
        assert torch.equal(weights(model), before)
        optimizer.zero_grad()
        loss_of(model, rank, 2).backward()
        optimizer.step()
        assert not torch.equal(weights(model), before), "the next step goes on"
        return "detected"
    return "stepped"


@pytest.mark.parametrize("how", ["clip", "data", "replace", "remove", "again"])
def test_gradients_changed_after_they_were_sent_are_detected(cluster: Cluster, how: str) -> None:
    assert cluster.run(3, _tamper, how, True) == ["detected"] * 3
    assert cluster.run(3, _tamper, how, False) == ["stepped"] * 3


def _one_changes(rank: int, group: dist.ProcessGroup, how: str) -> str:
    model = make_model()
    optimizer = DistributedLion(model.named_parameters(), 1e-2, process_group=group, bucket_numel=300)
    before = weights(model)
    loss_of(model, rank, 0).backward()
    last = list(model.parameters())[-1]
    assert last.grad is not None
    if rank == 1 and how == "data":
        last.grad.data.neg_()
    if rank == 1 and how == "again":
        loss_of(model, rank, 1).backward()
    try:
        optimizer.step()
    except GradientChangedError as problem:
        assert torch.equal(weights(model), before)
        return str(problem)
    return "stepped"


@pytest.mark.parametrize("how", ["data", "again"])
def test_a_change_on_one_worker_raises_on_all(cluster: Cluster, how: str) -> None:
    for text in cluster.run(3, _one_changes, how):
        assert "worker 1" in text


def _drop(
    rank: int,
    group: dist.ProcessGroup,
    droppers: tuple[int, ...],
    idle: bool,
    sync: MomentumSync | None = None,
) -> tuple[list[str], Tensor]:
    """Some workers drop their second batch after backward. ``idle``: worker 1's last layer has no gradient then."""
    model = make_model()
    optimizer = DistributedLion(
        model.named_parameters(), 1e-2, process_group=group, bucket_numel=300, momentum_sync=sync
    )
    log = []
    for step in range(4):
        try:
            optimizer.zero_grad()
            if idle and step == 1 and rank == 1:
                model[0](torch.ones(1, 10)).sum().backward()  # type: ignore[index]
            else:
                loss_of(model, rank, step).backward()
            if step == 1 and rank in droppers:
                optimizer.zero_grad()
                log.append("dropped")
                continue
            optimizer.step()
            log.append("stepped")
        except AgreementError as problem:
            assert "dropped the batch" in str(problem)
            log.append("told")
    return log, weights(model)


@pytest.mark.parametrize("idle", [False, True])
def test_a_batch_dropped_on_all_workers(cluster: Cluster, idle: bool) -> None:
    results = cluster.run(3, _drop, (0, 1, 2), idle)
    for log, final in results:
        assert log == ["stepped", "dropped", "stepped", "stepped"]
        assert torch.equal(final, results[0][1])


@pytest.mark.parametrize("sync", [None, MomentumSync(every=1), MomentumSync(every=2, budget=8.0)], ids=str)
def test_a_batch_dropped_on_one_worker_is_told_to_all(cluster: Cluster, sync: MomentumSync | None) -> None:
    results = cluster.run(3, _drop, (1,), False, sync)
    for log, final in results:
        assert log == ["stepped", "told", "stepped", "stepped"], "nobody applied that step, and all go on together"
        assert torch.equal(final, results[0][1])


def _nested(rank: int, group: dist.ProcessGroup) -> Tensor:
    model = make_model()
    optimizer = DistributedLion(model.named_parameters(), 1e-2, process_group=group, bucket_numel=300)
    with optimizer.no_sync():
        with optimizer.no_sync():
            loss_of(model, rank, 0).backward()
        loss_of(model, rank, 1).backward()
    loss_of(model, rank, 2).backward()
    optimizer.step()
    return weights(model)


def test_no_sync_nests(cluster: Cluster) -> None:
    results = cluster.run(2, _nested)
    assert torch.equal(results[0], results[1])


def test_untouched_gradients_raise_no_false_alarm(cluster: Cluster) -> None:
    assert cluster.run(3, _tamper, "nothing", True) == ["stepped"] * 3


def _abandon(rank: int, group: dist.ProcessGroup) -> Tensor:
    model = make_model()
    optimizer = DistributedLion(model.parameters(), 1e-2, process_group=group, bucket_numel=300)
    loss_of(model, rank, 0).backward()
    optimizer.zero_grad()  # what backward sent is forgotten
    loss_of(model, rank, 1).backward()
    optimizer.step()
    return weights(model)


def _plain(rank: int, group: dist.ProcessGroup) -> Tensor:
    model = make_model()
    optimizer = DistributedLion(model.parameters(), 1e-2, process_group=group)
    loss_of(model, rank, 1).backward()
    optimizer.step()
    return weights(model)


def test_zero_grad_abandons_what_backward_has_sent(cluster: Cluster) -> None:
    assert torch.equal(cluster.run(3, _abandon)[0], cluster.run(3, _plain)[0])


def _not_finite(rank: int, group: dist.ProcessGroup, bad: dict[int, float], quorum: int | None) -> Any:
    model = make_model()
    optimizer = DistributedLion(model.named_parameters(), 1e-2, process_group=group, quorum=quorum, bucket_numel=300)
    before = weights(model)
    log: list[Any] = []
    for step in range(4):
        optimizer.zero_grad()
        loss = loss_of(model, rank, step)
        (loss * bad[rank] if step == 1 and rank in bad else loss).backward()
        try:
            optimizer.step()
        except QuorumError as problem:
            log.append(str(problem))
            continue
        log.append((optimizer.stats.voters, optimizer.stats.abstentions))
    momenta = [optimizer.state[p]["exp_avg"] for p in model.parameters()]
    assert all(m.isfinite().all() for m in momenta)
    assert weights(model).isfinite().all()
    assert not torch.equal(before, weights(model))
    return log, weights(model)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_broken_worker_abstains_and_the_others_train_on(cluster: Cluster, value: float) -> None:
    results = cluster.run(4, _not_finite, {2: value}, None)
    for log, final in results:
        assert log == [(4, ()), (3, (2,)), (4, ()), (4, ())]
        assert torch.equal(final, results[0][1])


def test_all_abstaining_raises_on_all_and_the_next_step_goes_on(cluster: Cluster) -> None:
    for log, _ in cluster.run(4, _not_finite, dict.fromkeys(range(4), math.nan), None):
        assert "0 of 4 workers" in log[1]
        assert [log[0], *log[2:]] == [(4, ())] * 3


def test_quorum_is_counted(cluster: Cluster) -> None:
    for log, _ in cluster.run(4, _not_finite, {1: math.nan, 3: math.inf}, 3):
        assert "2 of 4 workers" in log[1]
        assert "workers 1, 3" in log[1]


def _embedding(rank: int, group: dist.ProcessGroup, codec: Any) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    table = nn.Embedding(20, 4)
    start = table.weight.detach().clone()
    optimizer = DistributedLion(table.parameters(), 0.1, memory="constant", codec=codec, process_group=group)
    for _ in range(9):
        optimizer.zero_grad()
        table(torch.tensor([rank, 5])).sum().backward()
        optimizer.step()
    return table.weight.detach() - start, start


@pytest.mark.parametrize("codec", [Vote(), Vote(zeros="abstain"), Levels(4, grid="log"), Mean()], ids=repr)
def test_unused_embedding_rows_do_not_drift(cluster: Cluster, codec: Any) -> None:
    """Known mistake: zero becomes a vote, and rows that nobody uses drift by lr every step."""
    moved, _ = cluster.run(4, _embedding, codec)[0]
    limit = 0.0 if codec == Vote(zeros="abstain") else 0.1 + 1e-6
    assert moved[6:].abs().max() <= limit
    assert moved[5].abs().min() > 0.5, "the row all workers use is trained"


def _wrapped(rank: int, group: dist.ProcessGroup) -> None:
    named = [(f"module.{name}", param) for name, param in make_model().named_parameters()]
    with pytest.warns(UserWarning, match="inside DistributedDataParallel"):
        DistributedLion(named, process_group=group)


def test_a_model_inside_ddp_is_noticed(cluster: Cluster) -> None:
    cluster.run(2, _wrapped)


def _same_batches(rank: int, group: dist.ProcessGroup, same: bool) -> int:
    """The step in which the warning comes; -1 where none does."""
    torch.manual_seed(0)
    model = nn.Linear(40, 40)
    optimizer = DistributedLion(model.named_parameters(), 1e-2, process_group=group)
    data = torch.Generator().manual_seed(0 if same else rank)
    for step in range(15):
        optimizer.zero_grad()
        model(torch.randn(8, 40, generator=data)).square().mean().backward()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            optimizer.step()
        if caught:
            assert "they see the same batches" in str(caught[0].message)
            return step
    return -1


def test_the_same_batches_on_all_workers_are_noticed(cluster: Cluster) -> None:
    assert cluster.run(2, _same_batches, True) == [10, 10]
    assert cluster.run(2, _same_batches, False) == [-1, -1]


def test_a_changed_gradient_names_ddp() -> None:
    assert "DistributedDataParallel around the model" in changed_message([1], "a gradient")
