"""Workers with different models or settings: a typed error on all of them that names the difference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from lioncub import Dense, DistributedLion, Hierarchical, Levels, Mean, MomentumSync, TwoPhase, Vote
from tests.support.cluster import Cluster, Failure


def named(order: tuple[str, ...] = ("a", "b"), shape: int = 4, dtype: torch.dtype = torch.float32) -> list[Any]:
    return [(name, nn.Parameter(torch.ones(shape, dtype=dtype))) for name in order]


def _construct(rank: int, group: dist.ProcessGroup, odd: str) -> None:
    """Worker 1 differs in one thing."""
    strange = rank == 1
    params, settings = named(), {"lr": 0.1, "codec": Vote(), "process_group": group}
    if strange and odd == "order":
        params = named(("b", "a"))
    elif strange and odd == "shape":
        params = named(shape=5)
    elif strange and odd == "dtype":
        params = named(dtype=torch.bfloat16)
    elif strange and odd == "count":
        params = named(("a", "b", "c"))
    elif strange and odd == "lr":
        settings["lr"] = 0.2
    elif strange and odd == "codec":
        settings["codec"] = Mean()
    elif strange and odd == "ties":
        settings["codec"] = Vote(ties="zero")
    elif strange and odd == "betas":
        settings["betas"] = (0.9, 0.98)
    elif strange and odd == "weight_decay":
        settings["weight_decay"] = 0.1
    elif strange and odd == "collective":
        settings["collective"] = "server"
    elif strange and odd == "momentum_sync":
        settings["momentum_sync"] = MomentumSync(every=3)
    elif strange and odd == "carrier":
        settings["carrier"] = "backend"
    elif strange and odd == "quorum":
        settings["quorum"] = 2
    with pytest.MonkeyPatch.context() as patch:
        if strange and odd == "version":
            patch.setattr("lioncub.step.plan.WIRE_VERSION", 99)
        DistributedLion(params, **settings)  # type: ignore[arg-type]


MISMATCHES = {
    "order": "parameter b",
    "shape": r"\(5,\)",
    "dtype": "bfloat16",
    "count": "3 parameters",
    "lr": "lr=0.2",
    "codec": "Mean",
    "ties": "ties='zero'",
    "betas": "0.98",
    "weight_decay": "weight_decay=0.1",
    "collective": "Server",
    "momentum_sync": "momentum every 3",
    "carrier": "carrier backend",
    "quorum": "quorum 2",
    "version": "wire version",
}


@pytest.mark.parametrize("odd", MISMATCHES)
def test_every_worker_names_the_difference(cluster: Cluster, odd: str) -> None:
    for failure in cluster.attempt(3, _construct, odd):
        assert isinstance(failure, Failure)
        assert failure.kind == "AgreementError"
        assert "worker 1" in failure.text
        assert MISMATCHES[odd].replace("\\", "") in failure.text
    assert cluster.run(3, _construct, "nothing") == [None] * 3, "the group is as good as before"


def _step(rank: int, group: dist.ProcessGroup, what: str) -> Any:
    params = named()
    optimizer = DistributedLion(params, 0.1, process_group=group)
    for step in range(3):
        optimizer.zero_grad()
        (params[0][1] * params[1][1] * (rank + 1.0)).sum().backward()
        if step == 1 and rank == 2 and what == "lr":
            optimizer.param_groups[0]["lr"] = 0.3
        if step == 1 and rank == 2 and what == "skipped":
            optimizer.param_groups[0]["step"] += 1
        try:
            optimizer.step()
        except Exception as problem:
            return step, type(problem).__name__, str(problem), [p.detach() for _, p in params]
    return None


@pytest.mark.parametrize(
    ("what", "kind", "says"),
    [
        ("lr", "AgreementError", "lr, betas, memory, warmup or weight_decay"),
        ("skipped", "AgreementError", "worker 2 at step 2"),
    ],
)
def test_what_changes_later_is_found_at_once(cluster: Cluster, what: str, kind: str, says: str) -> None:
    results = cluster.run(3, _step, what)
    for step, found, text, params in results:
        assert (step, found) == (1, kind)
        assert says in text
        assert "worker 2" in text
        assert all(torch.equal(a, b) for a, b in zip(params, results[0][3], strict=True)), "nothing was applied"


def _uneven(rank: int, group: dist.ProcessGroup) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCAL_WORLD_SIZE", "2" if rank < 2 else "1")
        DistributedLion(named(), process_group=group, collective=Hierarchical())


def test_nodes_of_different_sizes_raise_on_all(cluster: Cluster) -> None:
    for failure in cluster.attempt(4, _uneven):
        assert isinstance(failure, Failure)
        assert failure.kind == "AgreementError"
        assert "inner=1" in failure.text


def _sparse(rank: int, group: dist.ProcessGroup) -> None:
    table = nn.Embedding(10, 3, sparse=rank == 1)
    nn.init.ones_(table.weight)
    optimizer = DistributedLion(table.named_parameters(), 0.1, process_group=group)
    table(torch.tensor([1])).sum().backward()
    optimizer.step()


def test_a_sparse_gradient_on_one_worker_raises_on_all(cluster: Cluster) -> None:
    for failure in cluster.attempt(3, _sparse):
        assert isinstance(failure, Failure)
        assert failure.kind == "SparseGradientError"
        assert "worker 1" in failure.text


def _make(rank: int, group: dist.ProcessGroup, settings: Callable[[], dict[str, Any]]) -> None:
    DistributedLion(named(), process_group=group, **settings())


def _sum_vote() -> dict[str, Any]:
    return {"collective": "sum"}


def _sum_midrise() -> dict[str, Any]:
    return {"collective": "sum", "codec": Levels(8)}


def _sum_two_bits() -> dict[str, Any]:
    return {"collective": "sum", "codec": Levels(2, grid="midtread")}


def _nodes_of_two() -> dict[str, Any]:
    return {"collective": Hierarchical(inner=2)}


def _outer_sum() -> dict[str, Any]:
    return {"collective": Hierarchical(inner=1, outer="sum"), "codec": Dense()}


def _outer_collectives() -> dict[str, Any]:
    return {"collective": Hierarchical(inner=1, outer=TwoPhase("collectives"))}


def _pattern() -> dict[str, Any]:
    return {"momentum_sync": MomentumSync(match="head.*")}


def _high_quorum() -> dict[str, Any]:
    return {"quorum": 4}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (_sum_vote, "cannot add up Vote"),
        (_sum_midrise, 'grid="midtread"'),
        (_sum_two_bits, "at most 1 workers"),
        (_nodes_of_two, "3 workers do not make whole nodes of 2"),
        (_outer_sum, "between nodes use"),
        (_outer_collectives, "process group of its own"),
        (_pattern, "'head.*' matches no parameter"),
        (_high_quorum, "quorum=4"),
    ],
)
def test_impossible_settings_raise_at_construction(cluster: Cluster, settings: Any, says: str) -> None:
    for failure in cluster.attempt(3, _make, settings):
        assert isinstance(failure, Failure)
        assert failure.kind == "ConfigError"
        assert says in failure.text
