"""Virtual workers inside one process equal as many processes, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lioncub import Codec, Dense, Levels, Mean, MomentumSync, Vote
from lioncub.tools.study.lions import ReferenceLion, VirtualLion, combiner
from lioncub.tools.study.method import Method
from tests.support.cluster import Cluster
from tests.support.training import Job, train

CODECS = [
    Vote(),
    Vote(ties="zero"),
    Vote(zeros="abstain"),
    Mean(),
    Levels(4, grid="log"),
    Levels(4, grid="float"),
    Levels(3, "linf"),
    Dense(),
]


def driven(method: Method, job: Job) -> Method:
    """The method after the job's steps, with the gradients that real workers see."""
    shapes = range(len(job.shapes))
    for step in range(job.steps):
        for worker in range(method.workers):
            gradients = [job.gradient(step, worker, tensor) for tensor in shapes]
            method.send(worker, [g for g in gradients if g is not None])
        method.move(job.lr)
    return method


def settings(job: Job) -> dict[str, Any]:
    return {"betas": job.betas, "weight_decay": job.weight_decay, "memory": job.memory, "warmup": job.warmup}


def virtual(job: Job, workers: int, codec: Codec, **options: Any) -> VirtualLion:
    named = [(f"p{number}", value) for number, value in enumerate(job.parameters())]
    method = VirtualLion(named, workers, codec=codec, **settings(job), **options)
    driven(method, job)
    return method


@pytest.mark.parametrize("sync", [None, MomentumSync(every=7), MomentumSync(every=5, budget=1.0)], ids=str)
@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_four_virtual_workers_equal_four_processes(cluster: Cluster, codec: Codec, sync: MomentumSync | None) -> None:
    job = Job(options={"momentum_sync": sync})
    method = virtual(job, 4, codec, momentum_sync=sync)
    for rank, result in enumerate(cluster.run(4, train, job, codec, "two-phase")):
        for mine, theirs in zip(method.params, result["parameters"], strict=True):
            assert torch.equal(mine, theirs)
        for mine, theirs in zip(method.momenta[rank], result["momenta"], strict=True):
            assert torch.equal(mine, theirs.view(-1))


@pytest.mark.parametrize(("workers", "steps"), [(2, 6), (3, 6), (16, 6), (1024, 2)])
@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_virtual_workers_equal_the_reference(codec: Codec, workers: int, steps: int) -> None:
    job = Job(steps=steps)
    mine = virtual(job, workers, codec)
    theirs = ReferenceLion(job.parameters(), workers, combine=combiner(codec), **settings(job))
    driven(theirs, job)
    for x, y in zip(mine.params, theirs.params, strict=True):
        assert torch.equal(x, y)
    for worker in range(workers):
        for m, n in zip(mine.momenta[worker], theirs.momenta, strict=True):
            assert torch.equal(m, n[worker])
