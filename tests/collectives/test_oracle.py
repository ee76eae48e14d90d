"""Every collective on 2 to 8 real workers equals the reference, with zero tolerance.

A collective sees blocks of bytes only, so three codecs stand for all: one bit each way, other sizes up and down, and
whole floats. ``tests/codecs/test_oracle.py`` proves every codec, the slow ``tests/test_oracle.py`` the product of both.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import pytest
import torch.distributed as dist

from lioncub import Codec, Dense, Hierarchical, Levels, TwoPhase, Vote, reference
from lioncub.reference import Combiner
from tests.support.cluster import Cluster
from tests.support.training import LOSSY, SHORT, Job, assert_matches, oracle, train
from tests.toy_collective import SharedCount

WORKERS = (2, 3, 5, 8)
CODECS: tuple[tuple[Codec, Combiner], ...] = (
    (Vote(), reference.vote),
    (Levels(4, grid="midtread"), partial(reference.levels, bits=4, scale="l1", grid="midtread")),
    (Dense(), reference.dense),
)
FLAT: dict[str, Any] = {
    "auto": "auto",
    "two-phase": "two-phase",
    "collectives": TwoPhase("collectives"),
    "gather": "gather",
    "server": "server",
    "from outside": SharedCount(),
}
NODES = {  # workers, workers of a node, the collective between nodes
    "nodes of one": (3, 1, "two-phase"),
    "one node": (3, 3, "auto"),
    "pairs, gather": (8, 2, "gather"),
    "pairs, server": (8, 2, "server"),
    "halves, two-phase": (8, 4, "two-phase"),
}


@cache
def expected(codec: int, num_workers: int) -> tuple[Any, Any]:
    return oracle(LOSSY, num_workers, CODECS[codec][1])


def train_each(
    rank: int, group: dist.ProcessGroup, job: Job, codecs: list[Codec], collective: Any
) -> list[dict[str, Any]]:
    return [train(rank, group, job, codec, collective) for codec in codecs]


def trained(cluster: Cluster, num_workers: int, job: Job, collective: Any) -> list[list[dict[str, Any]]]:
    """By codec, then by worker."""
    results = cluster.run(num_workers, train_each, job, [codec for codec, _ in CODECS], collective)
    return [list(row) for row in zip(*results, strict=True)]


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("name", FLAT)
def test_flat(cluster: Cluster, name: str, num_workers: int) -> None:
    for codec, results in enumerate(trained(cluster, num_workers, LOSSY, FLAT[name])):
        assert_matches(results, expected(codec, num_workers))
        for result in results:
            for step, who in enumerate(result["abstentions"]):
                assert who == tuple(sorted(worker for s, worker, _ in LOSSY.broken if s == step))


@pytest.mark.parametrize("num_workers", WORKERS)
def test_summing_allreduce(cluster: Cluster, num_workers: int) -> None:
    for bits in (4, 8):
        if level := reference.summed_max_level(bits, num_workers):
            combine = partial(reference.levels, bits=bits, scale="l1", grid="midtread", max_level=level)
            results = cluster.run(num_workers, train, SHORT, Levels(bits, grid="midtread"), "sum")
            assert_matches(results, oracle(SHORT, num_workers, combine))


@pytest.mark.parametrize("name", NODES)
def test_hierarchical(cluster: Cluster, name: str) -> None:
    num_workers, per_node, outer = NODES[name]
    for (_, combine), results in zip(
        CODECS, trained(cluster, num_workers, SHORT, Hierarchical(per_node, outer)), strict=True
    ):
        nodes = partial(reference.hierarchical, per_node=per_node, combine=combine)
        assert_matches(results, oracle(SHORT, num_workers, nodes))
