"""A step with every option on real workers equals the reference, with zero tolerance."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist

from lioncub import Codec, Levels, MomentumSync, Vote, kernels, reference
from tests.support.cluster import Cluster
from tests.support.training import LOSSY, SHORT, Job, assert_matches, oracle, train

OPTIONS: dict[str, dict[str, Any]] = {
    "a tensor a bucket": {"bucket_numel": 1},
    "some buckets, not overlapped": {"bucket_numel": 100, "overlap": False},
    "a spare momentum": {"spare_momentum": True},
    "a spare momentum that meets": {"spare_momentum": True, "momentum_sync": MomentumSync(every=3)},
    "momenta meet by windows": {"momentum_sync": MomentumSync(every=3), "bucket_numel": 500},
    "momenta meet at once, whole": {"momentum_sync": MomentumSync(every=3, dtype=torch.float32, spread=False)},
    "momenta are chosen": {"momentum_sync": MomentumSync(every=2, budget=1.0), "bucket_numel": 500},
}
HALF: dict[str, dict[str, Any]] = {
    "rounded to nearest": {},
    "rounded at random": {"stochastic_rounding": True, "rounding_seed": 5},
    "and half momenta that meet": {"momentum_dtype": torch.bfloat16, "momentum_sync": MomentumSync(every=3)},
}
LOG = partial(reference.levels, bits=4, scale="l1", grid="log")


def matches(cluster: Cluster, job: Job, num_workers: int) -> None:
    for codec, combine in ((Vote(), reference.vote), (Levels(4, grid="log"), LOG)):
        results = cluster.run(num_workers, train, job, codec, "two-phase")
        assert_matches(results, oracle(job, num_workers, combine, job.options.get("momentum_sync")))


@pytest.mark.parametrize("num_workers", [1, 4])
@pytest.mark.parametrize("name", OPTIONS)
def test_options(cluster: Cluster, name: str, num_workers: int) -> None:
    absent = () if num_workers == 1 or "momentum_sync" in OPTIONS[name] else LOSSY.absent
    matches(cluster, replace(SHORT, absent=absent, options=OPTIONS[name]), num_workers)


@pytest.mark.parametrize("num_workers", [1, 2])
@pytest.mark.parametrize("name", HALF)
def test_half_precision(cluster: Cluster, name: str, num_workers: int) -> None:
    matches(cluster, replace(SHORT, dtype=torch.bfloat16, options=HALF[name]), num_workers)


def train_with_mixed_bodies(rank: int, group: dist.ProcessGroup, codec: Codec) -> dict[str, Any]:
    with kernels.using("torch") if rank % 2 else nullcontext():
        return train(rank, group, LOSSY, codec, "two-phase")


def test_a_machine_without_a_compiler_agrees_with_the_others(cluster: Cluster) -> None:
    for codec, combine in ((Vote(), reference.vote), (Levels(4, grid="log"), LOG)):
        assert_matches(cluster.run(4, train_with_mixed_bodies, codec), oracle(LOSSY, 4, combine))
