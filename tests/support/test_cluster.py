"""The test cluster itself: a failure in a worker fails the test."""

from __future__ import annotations

import torch.distributed as dist

from tests.support.cluster import Cluster, Failure


def test_the_cluster_reports_failures(cluster: Cluster) -> None:
    def is_failure(result: object) -> bool:
        return isinstance(result, Failure) and result.kind == "ZeroDivisionError"

    assert all(is_failure(result) for result in cluster.attempt(2, _fail))


def _fail(rank: int, group: dist.ProcessGroup) -> float:
    return 1 / 0
