"""What users do with an optimizer, on real workers."""

from __future__ import annotations

import copy
import math
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
    broadcast_parameters,
)
from lioncub.errors import GradientChangedError, QuorumError, ReplicasDifferError
from lioncub.momentum import divergence
from tests.cluster import Cluster, Failure


def make_model() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))


def loss_of(model: nn.Module, rank: int, step: int, batch: int = 16) -> Tensor:
    """Every worker its own data, one common task."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(batch, 10, generator=generator)
    target = torch.stack([x[:, 0] - x[:, 1], x[:, 2], x[:, 3] * 0.5], dim=1)
    loss: Tensor = (model(x) - target).square().mean()
    return loss


def weights(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


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


def _embedding(rank: int, group: dist.ProcessGroup, codec: Any) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    table = nn.Embedding(20, 4)
    start = table.weight.detach().clone()
    optimizer = DistributedLion(table.parameters(), 0.1, codec=codec, process_group=group)
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


def _sync_by_budget(rank: int, group: dist.ProcessGroup) -> tuple[list[bool], float, Tensor]:
    params = {name: nn.Parameter(torch.zeros(64)) for name in ("same", "different", "large")}
    params["large"] = nn.Parameter(torch.zeros(6400))
    sync = MomentumSync(every=4, budget=0.2)
    optimizer = DistributedLion(params.items(), 1e-3, process_group=group, momentum_sync=sync)
    for step in range(8):
        generator = torch.Generator().manual_seed(step)
        params["same"].grad = torch.randn(64, generator=generator)
        own = torch.Generator().manual_seed(100 * step + rank)
        params["different"].grad = torch.randn(64, generator=own)
        params["large"].grad = torch.randn(6400, generator=own)
        optimizer.step()
    selected = [optimizer.state[p]["synchronized"] for p in params.values()]
    return selected, optimizer.stats.bits_per_parameter, optimizer.state[params["different"]]["exp_avg"]


def test_budget_selects_the_divergent_tensors_that_fit(cluster: Cluster) -> None:
    results = cluster.run(3, _sync_by_budget)
    for selected, _, _ in results:
        assert selected == [False, True, False], "equal momenta need no averaging, and the large tensor does not fit"
    rows = torch.stack([momentum for _, _, momentum in results])
    assert 0 < divergence(rows.numpy()) < 0.5, "most of the divergent tensor was averaged during the last period"


def _traffic(rank: int, group: dist.ProcessGroup, codec: Any, collective: Any) -> float:
    params = [nn.Parameter(torch.zeros(n)) for n in (600_000, 999, 399_001, 64)]
    optimizer = DistributedLion(params, process_group=group, codec=codec, collective=collective)
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer.step()
    return optimizer.stats.bits_per_parameter


@pytest.mark.parametrize("num_workers", [2, 4, 8])
@pytest.mark.parametrize(
    ("codec", "up", "down"),
    [
        (Vote(), 1, lambda n: 1),
        (Mean(), 1, lambda n: math.ceil(math.log2(n + 1))),
        (Levels(4), 4, lambda n: 1),
        (Levels(5, grid="log"), 5, lambda n: 1),
        (Levels(3, grid="midtread"), 3, lambda n: 2),
    ],
    ids=repr,
)
def test_headers_and_padding_cost_less_than_two_percent(
    cluster: Cluster, codec: Any, up: int, down: Any, num_workers: int
) -> None:
    bits = (num_workers - 1) / num_workers * (up + down(num_workers))
    for sent in cluster.run(num_workers, _traffic, codec, "two-phase"):
        assert bits <= sent <= 1.02 * bits


def _two_optimizers(rank: int, group: dist.ProcessGroup, together: bool) -> Tensor:
    """Two halves of one model, each with an optimizer of its own, fed by one backward or by two."""
    model = make_model()
    halves = [list(model[:2].named_parameters()), list(model[2:].named_parameters())]  # type: ignore[index]
    settings: dict[str, Any] = {"process_group": group, "bucket_numel": 300, "momentum_sync": MomentumSync(every=2)}
    optimizers = [DistributedLion(half, 1e-2, **settings) for half in halves]
    if not together:
        optimizers.reverse()
    for step in range(6):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        for optimizer in optimizers:
            optimizer.step()
    return weights(model)


def test_two_optimizers_share_a_process_group(cluster: Cluster) -> None:
    results = [*cluster.run(4, _two_optimizers, True), *cluster.run(4, _two_optimizers, False)]
    assert all(torch.equal(result, results[0]) for result in results)


def _broadcast(rank: int, group: dist.ProcessGroup) -> Tensor:
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    try:
        DistributedLion(model.parameters(), process_group=group)
    except ReplicasDifferError as problem:
        assert "broadcast_parameters" in str(problem)
        assert problem.ranks
    else:
        raise AssertionError("different weights went unnoticed")
    model[1].running_mean.fill_(rank)  # type: ignore[operator]
    broadcast_parameters(model, group)
    DistributedLion(model.parameters(), process_group=group)
    return torch.cat([weights(model), model[1].running_mean])  # type: ignore[list-item]


def test_different_starts_are_refused_and_broadcast_mends_them(cluster: Cluster) -> None:
    results = cluster.run(3, _broadcast)
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


def _flip(rank: int, group: dist.ProcessGroup, element: int) -> int:
    model = make_model()
    optimizer = DistributedLion(model.named_parameters(), 1e-3, process_group=group, bucket_numel=300)
    for step in range(80):
        if step == 5 and rank == 1:
            flat = next(iter(model.parameters())).data.view(-1).view(torch.int32)
            flat[element] ^= 1
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        try:
            optimizer.step()
        except ReplicasDifferError as problem:
            assert problem.ranks == (1,)
            assert "worker 1" in str(problem)
            return step
    return -1


@pytest.mark.parametrize("element", [0, 100, 319])
def test_one_flipped_bit_is_found_and_named_within_64_steps(cluster: Cluster, element: int) -> None:
    steps = cluster.run(3, _flip, element)
    assert len(set(steps)) == 1, "all workers raise at the same step"
    assert 5 <= steps[0] <= 5 + 64


def test_two_phase_transports_send_the_same_bytes(cluster: Cluster) -> None:
    a = cluster.run(4, _traffic, Vote(), TwoPhase("point-to-point"))
    assert a == cluster.run(4, _traffic, Vote(), TwoPhase("collectives"))


def test_the_cluster_reports_failures(cluster: Cluster) -> None:
    def is_failure(result: object) -> bool:
        return isinstance(result, Failure) and result.kind == "ZeroDivisionError"

    assert all(is_failure(result) for result in cluster.attempt(2, _fail))


def _fail(rank: int, group: dist.ProcessGroup) -> float:
    return 1 / 0
