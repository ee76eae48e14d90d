"""The distributed optimizer on real workers: groups, schedulers, state, frozen parameters, several optimizers."""

from __future__ import annotations

import copy
import random
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from lioncub import (
    Dense,
    DistributedLion,
    Hierarchical,
    Levels,
    LionCub,
    Mean,
    MomentumSync,
    TwoPhase,
    Vote,
)
from tests.support.cluster import Cluster, Failure
from tests.support.small_model import loss_of, make_model, weights


def _learn(rank: int, group: dist.ProcessGroup, codec: Any, collective: Any, sync: Any) -> tuple[float, float, Tensor]:
    model = make_model()
    optimizer = DistributedLion(
        model.named_parameters(), 3e-3, codec=codec, collective=collective, momentum_sync=sync, process_group=group
    )
    first = loss_of(model, 99, 0, 512).item()
    for step in range(150):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
    assert 0 < optimizer.stats.agreement <= 1
    return first, loss_of(model, 99, 0, 512).item(), weights(model)


@pytest.mark.parametrize(
    ("codec", "collective", "sync"),
    [
        (Vote(), "auto", None),
        (Mean(), "server", None),
        (Levels(4, grid="log"), "two-phase", MomentumSync(every=16)),
        (Levels(8, grid="midtread"), "sum", None),
        (Dense(), "gather", None),
        (Vote(), Hierarchical(inner=2), MomentumSync(every=16, budget=0.5)),
    ],
    ids=str,
)
def test_learns_and_replicas_stay_identical(cluster: Cluster, codec: Any, collective: Any, sync: Any) -> None:
    results = cluster.run(4, _learn, codec, collective, sync)
    first, last, _ = results[0]
    assert last < first / 4
    assert all(torch.equal(result[2], results[0][2]) for result in results)


def _train_groups(rank: int, group: dist.ProcessGroup) -> tuple[list[Tensor], float]:
    model = make_model()
    first, last = model[0], model[4]  # type: ignore[index]
    optimizer = DistributedLion(
        [
            {"params": first.parameters(), "codec": Vote(zeros="abstain"), "lr": 1e-2},
            {"params": last.parameters(), "codec": Mean(), "lr": 2e-2, "weight_decay": 0.3},
            {"params": model[2].parameters()},  # type: ignore[index]
        ],
        lr=1e-3,
        memory="constant",
        codec=Levels(2),
        process_group=group,
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    moved = []
    for step in range(4):
        before = [p.detach().clone() for p in model[2].parameters()]  # type: ignore[index]
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
        largest = max(float((p.detach() - b).abs().max()) for p, b in zip(model[2].parameters(), before, strict=True))  # type: ignore[index]
        moved.append(abs(largest - optimizer.param_groups[2]["lr"]))
        scheduler.step()
    return [p.detach() for p in model.parameters()], max(moved)


def test_groups_with_codecs_of_their_own_and_schedulers(cluster: Cluster) -> None:
    results = cluster.run(3, _train_groups)
    for params, deviation in results:
        assert deviation < 1e-6, "the scheduler's lr of this very step is what parameters move by"
        assert all(torch.equal(p, q) for p, q in zip(params, results[0][0], strict=True))


def _resume(rank: int, group: dist.ProcessGroup, interrupted: bool) -> list[Tensor]:
    model = make_model()
    settings: dict[str, Any] = {"bits": 3, "process_group": group, "momentum_sync": MomentumSync(every=4, budget=2.0)}
    optimizer = LionCub(model.named_parameters(), 1e-2, **settings)
    for step in range(14):
        if step == 7 and interrupted:
            states = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
            del optimizer
            model = make_model()
            model.load_state_dict(states[0])
            optimizer = LionCub(model.named_parameters(), 1e-2, **settings)
            optimizer.load_state_dict(states[1])
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
    return [*(p.detach() for p in model.parameters()), *(optimizer.state[p]["exp_avg"] for p in model.parameters())]


def test_state_dict_resumes_bit_for_bit(cluster: Cluster) -> None:
    whole, halves = cluster.run(3, _resume, False), cluster.run(3, _resume, True)
    for a, b in zip(whole, halves, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def _copies(rank: int, group: dist.ProcessGroup, compiled: bool) -> Tensor:
    model = make_model()
    optimizer = DistributedLion(model.parameters(), 1e-2, process_group=group, bucket_numel=300)
    average = copy.deepcopy(model)
    runner = torch.compile(model, backend="aot_eager") if compiled else model
    for step in range(3):
        optimizer.zero_grad()
        loss_of(runner, rank, step).backward()  # type: ignore[arg-type]
        optimizer.step()
        loss_of(average, rank, step).backward()  # a copy's gradients are none of the optimizer's business
    return weights(model)


def test_deep_copied_and_compiled_models(cluster: Cluster) -> None:
    plain = cluster.run(2, _copies, False)
    compiled = cluster.run(2, _copies, True)
    assert torch.equal(plain[0], plain[1])
    assert torch.equal(compiled[0], compiled[1])
    torch.testing.assert_close(plain[0], compiled[0], atol=0.05, rtol=0)


def _half(rank: int, group: dist.ProcessGroup, dtype: torch.dtype) -> Tensor:
    model = make_model().to(dtype)
    optimizer = LionCub(model.parameters(), 2**-7, bits=2, process_group=group)
    for step in range(5):
        optimizer.zero_grad()
        x = torch.randn(8, 10, generator=torch.Generator().manual_seed(step * 9 + rank)).to(dtype)
        model(x).float().square().mean().backward()
        optimizer.step()
    assert all(optimizer.state[p]["exp_avg"].dtype == torch.float32 for p in model.parameters())
    return weights(model)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_parameters(cluster: Cluster, dtype: torch.dtype) -> None:
    results = cluster.run(3, _half, dtype)
    assert results[0].dtype == dtype
    assert all(torch.equal(result, results[0]) for result in results)


def _freeze(rank: int, group: dist.ProcessGroup) -> tuple[Tensor, list[int]]:
    model = make_model()
    model[0].requires_grad_(False)  # type: ignore[index]
    optimizer = DistributedLion(model.named_parameters(), 1e-2, process_group=group, bucket_numel=100)
    sizes = []
    for step in range(4):
        if step == 2:
            model[0].requires_grad_(True)  # type: ignore[index]
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
        sizes.append(optimizer.stats.num_parameters)
    return weights(model), sizes


def test_frozen_parameters_cost_nothing_and_can_thaw(cluster: Cluster) -> None:
    results = cluster.run(3, _freeze)
    total = sum(p.numel() for p in make_model().parameters())
    assert results[0][1] == [total - 352, total - 352, total, total]
    assert all(torch.equal(final, results[0][0]) for final, _ in results)


def _freeze_one(rank: int, group: dist.ProcessGroup) -> None:
    model = make_model()
    optimizer = DistributedLion(model.named_parameters(), 1e-2, process_group=group, bucket_numel=300)
    if rank == 1:
        model[0].requires_grad_(False)  # type: ignore[index]
    loss_of(model, rank, 0).backward()
    optimizer.step()


def test_freezing_on_one_worker_raises_on_all_and_says_why(cluster: Cluster) -> None:
    for failure in cluster.attempt(3, _freeze_one):
        assert isinstance(failure, Failure)
        assert failure.kind == "AgreementError"
        assert "worker 1 froze" in failure.text


def _jitter(rank: int, group: dist.ProcessGroup, settings: dict[str, Any]) -> Tensor:
    """Backward at another pace on every worker, many buckets, and collectives of the user's own in between."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(24, 24) for _ in range(6)))
    optimizer = DistributedLion(model.named_parameters(), 1e-3, process_group=group, bucket_numel=500, **settings)
    pace = random.Random(rank)

    def dawdle(*_: object) -> None:
        time.sleep(pace.random() * 0.01)

    for layer in model:
        layer.register_full_backward_pre_hook(dawdle)
    for step in range(25):
        optimizer.zero_grad()
        x = torch.randn(4, 24, generator=torch.Generator().manual_seed(100 * step + rank))
        loss = model(x).square().mean()
        loss.backward()
        total = loss.detach().clone()
        dist.all_reduce(total, group=group)
        optimizer.step()
    return weights(model)


@pytest.mark.parametrize(
    "settings",
    [
        {"collective": "two-phase"},
        {"collective": TwoPhase("collectives")},
        {"collective": "gather"},
        {"collective": "server"},
        {"collective": "sum", "codec": Levels(8, grid="midtread")},
        {"collective": Hierarchical(inner=2), "momentum_sync": MomentumSync(every=4, budget=4.0)},
    ],
    ids=str,
)
def test_workers_of_different_pace(cluster: Cluster, settings: dict[str, Any]) -> None:
    results = cluster.run(4, _jitter, settings)
    assert all(torch.equal(result, results[0]) for result in results)


def _two_optimizers(rank: int, group: dist.ProcessGroup, together: bool, collective: Any) -> Tensor:
    """Two halves of one model, each with an optimizer of its own, fed by one backward or by two."""
    model = make_model()
    halves = [list(model[:2].named_parameters()), list(model[2:].named_parameters())]  # type: ignore[index]
    settings: dict[str, Any] = {"process_group": group, "bucket_numel": 300, "momentum_sync": MomentumSync(every=2)}
    optimizers = [DistributedLion(half, 1e-2, collective=collective, **settings) for half in halves]
    if not together:
        optimizers.reverse()
    for step in range(6):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        for optimizer in optimizers:
            optimizer.step()
    return weights(model)


@pytest.mark.parametrize("collective", ["two-phase", TwoPhase("collectives")], ids=str)
def test_two_optimizers_share_a_process_group(cluster: Cluster, collective: Any) -> None:
    results = [result for order in (True, False) for result in cluster.run(4, _two_optimizers, order, collective)]
    assert all(torch.equal(result, results[0]) for result in results)


def _on_a_mesh(rank: int, group: dist.ProcessGroup) -> int:
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("outer", "inner"))
    torch.manual_seed(rank // 4)
    model = nn.Linear(3, 3)  # replicas inside a row of the mesh only
    optimizer = DistributedLion(model.parameters(), process_group=mesh["inner"])
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    return optimizer.stats.voters


def test_a_device_mesh_dimension_is_a_process_group(cluster: Cluster) -> None:
    assert cluster.run(8, _on_a_mesh) == [4] * 8


def _whole_mesh(rank: int, group: dist.ProcessGroup) -> None:
    from torch.distributed.device_mesh import init_device_mesh

    DistributedLion([nn.Parameter(torch.ones(1))], process_group=init_device_mesh("cpu", (2, 4)))


def test_a_mesh_of_two_dimensions_is_refused(cluster: Cluster) -> None:
    for failure in cluster.attempt(8, _whole_mesh):
        assert isinstance(failure, Failure)
        assert failure.kind == "ConfigError"
        assert "one dimension" in failure.text
