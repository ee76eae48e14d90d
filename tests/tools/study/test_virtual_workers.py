"""Virtual workers inside one process equal as many processes, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lioncub import Codec, Dense, Levels, Mean, MomentumSync, Vote
from lioncub.tools.study.lions import VirtualLion
from tests.support.cluster import Cluster
from tests.support.training import Job, oracle, train
from tests.table import ROWS, Row

CODECS = (
    Vote(),
    Vote(ties="zero"),
    Vote(zeros="abstain"),
    Mean(),
    Levels(4, grid="log"),
    Levels(4, grid="float"),
    Levels(4, "linf"),
    Dense(),
)
CODEC_ROWS = pytest.mark.parametrize("row", [row for row in ROWS if row.codec in CODECS], ids=lambda row: row.id)


def virtual(job: Job, workers: int, codec: Codec, **options: Any) -> VirtualLion:
    """After the job's steps, with the gradients that real workers see."""
    named = [(f"p{number}", value) for number, value in enumerate(job.parameters())]
    rates: dict[str, Any] = {
        "betas": job.betas,
        "weight_decay": job.weight_decay,
        "memory": job.memory,
        "warmup": job.warmup,
    }
    method = VirtualLion(named, workers, codec=codec, **rates, **options)
    for step in range(job.steps):
        for worker in range(workers):
            gradients = [job.gradient(step, worker, tensor) for tensor in range(len(job.shapes))]
            method.send(worker, [g for g in gradients if g is not None])
        method.move(job.lr)
    return method


@pytest.mark.parametrize("sync", [None, MomentumSync(every=7), MomentumSync(every=5, budget=1.0)], ids=str)
@CODEC_ROWS
def test_four_virtual_workers_equal_four_processes(cluster: Cluster, row: Row, sync: MomentumSync | None) -> None:
    job = Job(options={"momentum_sync": sync})
    method = virtual(job, 4, row.codec, momentum_sync=sync)
    for rank, result in enumerate(cluster.run(4, train, job, row.codec, "two-phase")):
        for mine, theirs in zip(method.params, result["parameters"], strict=True):
            assert torch.equal(mine, theirs)
        for mine, theirs in zip(method.momenta[rank], result["momenta"], strict=True):
            assert torch.equal(mine, theirs.view(-1))


@pytest.mark.parametrize(("workers", "steps"), [(2, 6), (3, 6), (16, 6), (1024, 2)])
@CODEC_ROWS
def test_virtual_workers_equal_the_reference(row: Row, workers: int, steps: int) -> None:
    job = Job(steps=steps)
    method = virtual(job, workers, row.codec)
    xs, ms = oracle(job, workers, row.combine)
    for mine, x in zip(method.params, xs, strict=True):
        assert torch.equal(mine.view(-1), x)
    for worker in range(workers):
        assert all(torch.equal(mine, m[worker]) for mine, m in zip(method.momenta[worker], ms, strict=True))
