"""Stop requests in headers: all workers learn of one in the same step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from lioncub import DistributedLion, Hierarchical, Levels
from tests.support.cluster import Cluster

CASES: dict[str, dict[str, Any]] = {
    "two-phase": {},
    "not overlapped": {"overlap": False},
    "gather": {"collective": "gather"},
    "server": {"collective": "server"},
    "sum": {"collective": "sum", "codec": Levels(8, grid="midtread")},
    "hierarchical": {"collective": Hierarchical(inner=2)},
}
ASKING, AT = 2, 3


def train(
    rank: int, group: dist.ProcessGroup, settings: dict[str, Any], asks: bool
) -> tuple[list[tuple[int, ...]], list[int], list[Tensor]]:
    """Who wants to stop after each step, how many vote in it, and where it leads."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 1))
    optimizer = DistributedLion(
        model.named_parameters(), 1e-3, process_group=group, bucket_numel=100, **({"codec": Levels(2)} | settings)
    )
    torch.manual_seed(1 + rank)
    stopping, voters = [], []
    for step in range(AT + 1):
        optimizer.zero_grad()
        model(torch.randn(4, 16)).square().mean().backward()
        if asks and step == AT and rank == ASKING:
            optimizer.ask_to_stop()
        optimizer.step()
        stopping.append(optimizer.stats.stopping)
        voters.append(optimizer.stats.voters)
    return stopping, voters, [param.detach() for param in model.parameters()]


@pytest.mark.parametrize("case", CASES)
def test_all_workers_learn_it_in_the_same_step(cluster: Cluster, case: str) -> None:
    asked = cluster.run(4, train, CASES[case], True)
    never = cluster.run(4, train, CASES[case], False)
    for (stopping, voters, params), (silent, _, others) in zip(asked, never, strict=True):
        assert stopping == [()] * AT + [(ASKING,)]
        assert voters == [4] * (AT + 1)
        assert silent == [()] * (AT + 1)
        assert all(torch.equal(a, b) for a, b in zip(params, others, strict=True)), "its vote counts as ever"


def test_alone_it_tells_itself() -> None:
    param = nn.Parameter(torch.ones(3))
    optimizer = DistributedLion([param])
    optimizer.ask_to_stop()
    param.sum().backward()
    optimizer.step()
    assert optimizer.stats.stopping == (0,)
