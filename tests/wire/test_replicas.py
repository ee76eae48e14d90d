"""Replicas that are not the same: at the start, or later by a single bit."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from lioncub import (
    DistributedLion,
    broadcast_parameters,
)
from lioncub.errors import ReplicasDifferError
from tests.support.cluster import Cluster
from tests.support.small_model import loss_of, make_model, weights


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


def _flip(rank: int, group: dist.ProcessGroup, number: int, element: int) -> int:
    model = make_model()
    optimizer = DistributedLion(model.named_parameters(), 1e-3, process_group=group, bucket_numel=300)
    for step in range(80):
        if step == 5 and rank == 1:
            flat = list(model.parameters())[number].data.view(-1).view(torch.int32)
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


@pytest.mark.parametrize(("number", "element"), [(0, 0), (0, 100), (0, 319), (1, 0), (2, 1), (3, -1)])
def test_one_flipped_bit_is_found_and_named_within_64_steps(cluster: Cluster, number: int, element: int) -> None:
    """In any tensor of a bucket: the first, the last, one between."""
    steps = cluster.run(3, _flip, number, element)
    assert len(set(steps)) == 1, "all workers raise at the same step"
    assert 5 <= steps[0] <= 5 + 64
