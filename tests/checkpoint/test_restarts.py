"""Workers that fail and are started again: the run finishes, and nothing is lost.

By a loop that starts them again in their processes, and under ``torchrun --max-restarts``, killed at random.
"""

from __future__ import annotations

import gc
from datetime import timedelta
from functools import cache
from pathlib import Path

import pytest
import torch.distributed as dist
from torch import Tensor

import lioncub
from lioncub.errors import PeerError
from tests.support.checkpointing import Job, same
from tests.support.cluster import Cluster
from tests.support.failures import Failures, InjectedFailure
from tests.support.paths import TRAIN
from tests.support.seeds import chance
from tests.support.tiers import slow
from tests.support.torchrun import torchrun
from tests.support.train_script import POINTS, Config, Fault

STEPS, EVERY = 10, 3


def attempt(rank: int, folder: Path, failures: Failures) -> dict[str, Tensor]:
    """Train to the end, from the latest checkpoint on."""
    group = dist.new_group(timeout=timedelta(seconds=60))
    try:
        job = Job(rank, group)
        with lioncub.resume(folder, job.model, job.optimizer, every=EVERY, process_group=group) as run:
            job.order = run.extra.get("order", [])
            for step in run.steps(STEPS):
                failures.check(rank, step)
                job.train(1)
                run.extra["order"] = job.order
        return job.everything()
    finally:
        dist.destroy_process_group(group)


def restarted_until_done(
    rank: int, group: dist.ProcessGroup, folder: Path, failures: Failures
) -> tuple[dict[str, Tensor], list[str]]:
    """The state at the end, and what ended each attempt."""
    ends: list[str] = []
    while True:
        try:
            return attempt(rank, folder, failures), ends
        except (InjectedFailure, PeerError) as problem:
            ends.append(type(problem).__name__)
        gc.collect()  # connections close as they do at the end of a process


def test_failures_change_nothing(tmp_path: Path) -> None:
    cluster = Cluster(2)
    undisturbed = cluster.run(2, restarted_until_done, tmp_path / "undisturbed", Failures())
    failures = Failures().fail_at(1, 0).fail_at(0, EVERY).fail_at(1, 5).fail_at(1, 6).fail_at(0, STEPS - 1)
    failed = cluster.run(2, restarted_until_done, tmp_path / "failed", failures)
    cluster.close()
    for (expected, none), (found, ends) in zip(undisturbed, failed, strict=True):
        assert none == []
        assert len(ends) == 5
        assert ends.count("InjectedFailure") in (2, 3), "the other one's end is a lost peer"
        assert same(found, expected)


MOST_CALLS = {"before header": 40, "in vote": 60, "after vote": 8, "in save": 30}
"""A kill is at one of the first calls of an attempt: about eight steps, two saves."""


def trained(folder: Path, num_workers: int, faults: tuple[Fault, ...] = ()) -> list[str]:
    """The digest of everything on every worker at the end."""
    folder.mkdir()
    config = Config(folder=str(folder), steps=60, every=4, faults=faults)
    done = torchrun(TRAIN, config.to_json(), num_workers=num_workers, max_restarts=len(faults))
    assert done.returncode == 0, done.stderr
    return [(folder / f"digest-{rank}").read_text() for rank in range(num_workers)]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("restarts")


@cache
def undisturbed(folder: Path, num_workers: int) -> list[str]:
    return trained(folder / f"undisturbed-{num_workers}", num_workers)


@pytest.mark.parametrize(
    ("run", "num_workers", "kills"),
    [(2, 2, 1), *(pytest.param(run, 3 if run == 1 else 2, 5, marks=slow) for run in range(4))],
)
def test_kills_change_nothing(run: int, num_workers: int, kills: int, folder: Path) -> None:
    numbers = chance(f"restarts {run}")
    points = [list(POINTS)[run], *numbers.choices(list(POINTS), k=kills - 1)]  # each of them at least once
    faults = tuple(
        Fault(point, numbers.randrange(num_workers), numbers.randint(1, MOST_CALLS[point])) for point in points
    )
    print(faults)
    result = trained(folder / f"run-{run}-{kills}", num_workers, faults)
    assert len(list((folder / f"run-{run}-{kills}").glob("fault-*"))) == kills, "all of them happened"
    assert result == undisturbed(folder, num_workers)
