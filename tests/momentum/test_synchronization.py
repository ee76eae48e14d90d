"""Momentum synchronisation on real workers: the selected tensors, and no others."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lioncub import (
    DistributedLion,
    MomentumSync,
)
from lioncub.momentum.policy import divergence
from lioncub.transport.comm import Comm
from tests.support.cluster import Cluster


def _patterns(rank: int, group: dist.ProcessGroup) -> list[bool]:
    """Which momenta are the same on all workers after a period."""
    params = {name: nn.Parameter(torch.zeros(50)) for name in ("embed", "block.0", "block.1", "head")}
    sync = MomentumSync(every=4, match=["embed", "block.1"], dtype=torch.float32, spread=False)
    optimizer = DistributedLion(params.items(), process_group=group, momentum_sync=sync)
    for step in range(4):
        for number, p in enumerate(params.values()):
            p.grad = torch.randn(50, generator=torch.Generator().manual_seed(100 * step + 10 * number + rank))
        optimizer.step()
    comm = Comm.of(group, torch.device("cpu"))
    same = []
    for tag, p in enumerate(params.values()):
        rows, pending = comm.all_gather(optimizer.state[p]["exp_avg"].view(torch.uint8), 1000 + tag)
        pending.wait()
        same.append(bool((rows == rows[0]).all()))
    return same


def test_only_selected_momenta_meet(cluster: Cluster) -> None:
    assert cluster.run(3, _patterns) == [[True, False, True, False]] * 3


def _sync_by_budget(rank: int, group: dist.ProcessGroup) -> tuple[list[bool], float, Tensor]:
    params = {name: nn.Parameter(torch.zeros(64)) for name in ("same", "different", "large")}
    params["large"] = nn.Parameter(torch.zeros(6400))
    sync = MomentumSync(every=4, budget=0.2)
    optimizer = DistributedLion(params.items(), 1e-3, memory="constant", process_group=group, momentum_sync=sync)
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
