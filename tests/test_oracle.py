"""Every codec x every collective it allows x 1 to 8 real workers equals the reference, with zero tolerance."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache, partial
from typing import Any

import pytest
import torch
import torch.distributed as dist

from lioncub import Codec, Dense, Hierarchical, Levels, Mean, MomentumSync, TwoPhase, Vote, kernels, reference
from lioncub.collectives import Collective
from tests.support.cluster import Cluster
from tests.support.training import Job, assert_matches, oracle, train
from tests.table import ROWS

pytestmark = pytest.mark.slow

WORKERS = (1, 2, 4, 5, 8)
FLAT: tuple[str | Collective, ...] = ("two-phase", TwoPhase("collectives"), "gather", "server")
SUMMING = [(bits, n) for bits in range(2, 9) for n in WORKERS if reference.summed_max_level(bits, n) >= 1]
OUTER = ("auto", "two-phase", "gather", "server")
NODES = [(1, 1), (3, 1), (3, 3), (4, 2), (8, 2), (8, 4)]


@cache
def expected(row_number: int, num_workers: int) -> tuple[Any, Any]:
    return oracle(Job(), num_workers, ROWS[row_number].combine)


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("row", range(len(ROWS)), ids=[row.id for row in ROWS])
def test_flat_collectives_equal_the_reference(cluster: Cluster, row: int, num_workers: int) -> None:
    for collective in FLAT:
        results = cluster.run(num_workers, train, Job(), ROWS[row].codec, collective)
        assert_matches(results, expected(row, num_workers))


@pytest.mark.parametrize(("bits", "num_workers"), SUMMING)
def test_summing_allreduce_equals_the_reference(cluster: Cluster, bits: int, num_workers: int) -> None:
    level = reference.summed_max_level(bits, num_workers)
    for scale in ("l1", "linf"):
        combine = partial(reference.levels, bits=bits, scale=scale, grid="midtread", max_level=level)
        codec = Levels(bits, scale, "midtread")
        results = cluster.run(num_workers, train, Job(), codec, "sum")
        assert_matches(results, oracle(Job(), num_workers, combine))


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dense_sum_is_identical_on_all_workers(cluster: Cluster, dtype: torch.dtype, num_workers: int) -> None:
    results = cluster.run(num_workers, train, Job(), Dense(dtype), "sum")
    for result in results:
        for mine, first in zip(result["parameters"], results[0]["parameters"], strict=True):
            assert torch.equal(mine, first)
    # Another order of addition can turn a sum's sign only where the sum all but cancels.
    xs, _ = oracle(Job(), num_workers, partial(reference.dense, dtype=dtype))
    mine, theirs = torch.cat([p.view(-1) for p in results[0]["parameters"]]), torch.cat(xs)
    assert (mine != theirs).float().mean() < (1e-3 if dtype == torch.float32 else 0.2)


def hierarchical_matches(cluster: Cluster, row: int, num_workers: int, per_node: int, outer: str) -> None:
    combine = partial(reference.hierarchical, per_node=per_node, combine=ROWS[row].combine)
    collective = Hierarchical(inner=per_node, outer=outer)
    results = cluster.run(num_workers, train, Job(), ROWS[row].codec, collective)
    assert_matches(results, oracle(Job(), num_workers, combine))


@pytest.mark.parametrize(("num_workers", "per_node"), NODES)
@pytest.mark.parametrize("row", range(len(ROWS)), ids=[row.id for row in ROWS])
def test_hierarchical_equals_the_reference(cluster: Cluster, row: int, num_workers: int, per_node: int) -> None:
    hierarchical_matches(cluster, row, num_workers, per_node, OUTER[row % len(OUTER)])


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("row", [0, 4, 7], ids=[ROWS[row].id for row in (0, 4, 7)])
def test_every_collective_between_nodes_equals_the_reference(cluster: Cluster, row: int, outer: str) -> None:
    hierarchical_matches(cluster, row, 8, 2, outer)


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("collective", ["auto", "two-phase", TwoPhase("collectives"), "server"], ids=str)
@pytest.mark.parametrize("bucket_numel", [1, 100, 4000])
def test_buckets_and_overlap_change_nothing(
    cluster: Cluster, overlap: bool, collective: Any, bucket_numel: int
) -> None:
    job = Job(steps=8, options={"overlap": overlap, "bucket_numel": bucket_numel})
    log = partial(reference.levels, bits=4, scale="l1", grid="log")
    for codec, combine in ((Vote(), reference.vote), (Levels(4, grid="log"), log)):
        assert_matches(cluster.run(4, train, job, codec, collective), oracle(job, 4, combine))


@pytest.mark.parametrize("spread", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("budget", [None, 1.0])
@pytest.mark.parametrize("num_workers", [1, 2, 5])
def test_momentum_synchronisation_equals_the_reference(
    cluster: Cluster, spread: bool, dtype: torch.dtype, budget: float | None, num_workers: int
) -> None:
    sync = MomentumSync(every=7, dtype=dtype, spread=spread, budget=budget)
    job = Job(options={"momentum_sync": sync, "bucket_numel": 500})
    results = cluster.run(num_workers, train, job, Vote(), "auto")
    assert_matches(results, oracle(job, num_workers, reference.vote, sync))


ABSENT = (
    *((s, w, tensor) for s in range(20) for w in range(4) for tensor in (2, 7) if (s + w + tensor) % 3 == 0),
    *((5, worker, 3) for worker in range(8)),
)
BROKEN = ((0, 1, 7), (3, 0, 0), (3, 2, 4), (11, 3, 8))


@pytest.mark.parametrize("num_workers", [4, 5])
@pytest.mark.parametrize("row", range(len(ROWS)), ids=[row.id for row in ROWS])
def test_missing_and_broken_gradients_equal_the_reference(cluster: Cluster, row: int, num_workers: int) -> None:
    job = Job(absent=ABSENT, broken=BROKEN)
    collective = ("auto", "two-phase", "gather", "server")[row % 4]
    results = cluster.run(num_workers, train, job, ROWS[row].codec, collective)
    assert_matches(results, oracle(job, num_workers, ROWS[row].combine))
    for result in results:
        for step, who in enumerate(result["abstentions"]):
            assert who == tuple(sorted(worker for s, worker, _ in BROKEN if s == step))


SPARE_CODECS = [0, 3, 4, 7, 12, 20, len(ROWS) - 1]


@pytest.mark.parametrize("row", SPARE_CODECS, ids=[ROWS[row].id for row in SPARE_CODECS])
@pytest.mark.parametrize("num_workers", [1, 2, 4])
def test_a_spare_momentum_changes_nothing(cluster: Cluster, row: int, num_workers: int) -> None:
    sync = MomentumSync(every=7) if row == 0 else None
    job = Job(
        absent=ABSENT,
        broken=BROKEN if num_workers == 4 else (),
        options={"spare_momentum": True, "momentum_sync": sync},
    )
    results = cluster.run(num_workers, train, job, ROWS[row].codec, "two-phase")
    assert_matches(results, oracle(job, num_workers, ROWS[row].combine, sync))


HALF: list[dict[str, Any]] = [
    {"stochastic_rounding": True, "rounding_seed": 5},
    {"stochastic_rounding": True, "momentum_dtype": torch.bfloat16},
    {"momentum_dtype": torch.bfloat16, "bucket_numel": 300, "momentum_sync": MomentumSync(every=5)},
]


@pytest.mark.parametrize("num_workers", [1, 2, 4])
@pytest.mark.parametrize("options", HALF, ids=["noisy", "noisy-half", "half"])
def test_half_precision_equals_the_reference(cluster: Cluster, options: dict[str, Any], num_workers: int) -> None:
    log = partial(reference.levels, bits=4, scale="l1", grid="log")
    for dtype in (torch.bfloat16,) if options.get("stochastic_rounding") else (torch.bfloat16, torch.float16):
        job = Job(steps=8, dtype=dtype, options=options)
        for codec, combine in ((Vote(), reference.vote), (Levels(4, grid="log"), log), (Mean(), reference.mean)):
            results = cluster.run(num_workers, train, job, codec, "two-phase")
            assert_matches(results, oracle(job, num_workers, combine, options.get("momentum_sync")))


def train_with_mixed_bodies(rank: int, group: dist.ProcessGroup, job: Job, codec: Codec) -> dict[str, Any]:
    with kernels.using("torch") if rank % 2 else nullcontext():
        return train(rank, group, job, codec, "two-phase")


@pytest.mark.parametrize("row", range(len(ROWS)), ids=[row.id for row in ROWS])
def test_a_machine_without_a_compiler_agrees_with_the_others(cluster: Cluster, row: int) -> None:
    job = Job(absent=ABSENT, broken=BROKEN)
    assert_matches(cluster.run(4, train_with_mixed_bodies, job, ROWS[row].codec), oracle(job, 4, ROWS[row].combine))
