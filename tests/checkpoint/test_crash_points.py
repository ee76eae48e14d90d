"""A save that ends at any write, sync, rename or removal: the latest or the previous checkpoint loads."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from lioncub import checkpoint
from lioncub.checkpoint import writing
from lioncub.checkpoint.folders import checkpoints
from lioncub.checkpoint.reading import Checkpoint
from lioncub.errors import CheckpointError, NoCheckpointError, PeerError
from tests.support.checkpointing import Job, listing, same
from tests.support.cluster import CONTEXT, Cluster
from tests.support.failing_disk import Crash, Disk


@dataclass(frozen=True)
class Case:
    """The steps that were saved before, the one whose save crashes, and what is there after the next save."""

    before: tuple[int, ...]
    step: int
    keep: int
    after: tuple[int, ...]


CASES = {
    "the first of all": Case((), 1, 2, (1,)),
    "the third, and the first goes": Case((1, 2), 3, 2, (2, 3)),
    "the second, and the first goes": Case((1,), 2, 1, (2,)),
    "the only one is replaced": Case((1,), 1, 1, (1,)),
    "one of two is replaced": Case((1, 2), 2, 2, (1, 2)),
}


class Scene:
    """A run's folder before the save that crashes, and the state in it; the job that saves, and its state."""

    def __init__(self, folder: Path, case: Case) -> None:
        self.case = case
        self.before = folder
        folder.mkdir()
        self.job = Job()
        for step in case.before:
            self.job.train(1)
            self.job.save(folder, step)
        self.old = learned_from(folder)
        self.job.train(2)
        self.new = self.job.learned()

    def check(self, folder: Path, where: str) -> None:
        """What loads is the old state or the new one; and the next save leaves no trace of the crash."""
        found = learned_from(folder)
        if found is None:
            assert self.old is None, where
        else:
            assert same(found, self.new) or (self.old is not None and same(found, self.old)), where
        assert (checkpoint.latest(folder) is None) == (found is None), where
        for in_sight in checkpoints(folder).values():
            assert not list(Checkpoint.open(in_sight).problems(lambda _: None)), f"{where}: half a checkpoint in sight"
        self.job.save(folder, self.case.step, keep=self.case.keep)
        assert listing(folder) == [f"step-{step:010}" for step in self.case.after], where
        found = learned_from(folder)
        assert found is not None
        assert same(found, self.new), where


def learned_from(folder: Path) -> dict[str, Tensor] | None:
    """The state that a fresh process gets."""
    job = Job()
    try:
        job.load(folder)
    except NoCheckpointError:
        return None
    return job.learned()


POWER: dict[str, slice | None] = {
    "stays": None,
    "is cut": slice(None),
    "is cut, the last rename is lost": slice(-1, None),
    "is cut, the first rename is lost": slice(1),
}


@pytest.mark.parametrize(
    ("name", "power"),
    [
        *((name, power) for name in CASES for power in list(POWER)[:2]),
        *((name, power) for name in list(CASES)[2:4] for power in list(POWER)[2:]),
    ],
)
def test_a_crash_at_every_operation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, power: str) -> None:
    case, lost = CASES[name], POWER[power]
    monkeypatch.setattr(os, "fsync", lambda _: None)  # the power stays on, really
    scene = Scene(tmp_path / "before", case)
    number, crashed = 0, True
    while crashed:
        folder = tmp_path / str(number)
        shutil.copytree(scene.before, folder)
        disk = Disk(fail_at=number)
        with pytest.MonkeyPatch.context() as patch:
            disk.install(patch)
            try:
                scene.job.save(folder, case.step, keep=case.keep)
                crashed = False
            except Crash:
                if lost is not None:
                    disk.cut_power(lost)
        scene.check(folder, f"operation {number}, after {disk.log}")
        number += 1
    assert number == len(disk.log) + 1
    assert {"create", "write", "sync", "sync_folder", "rename", "unlink"} <= set(disk.log)
    print(f"{number - 1} operations")


def _die_everywhere(folder: Path, pipe: Connection) -> None:
    """Copies of this process save step 3 and die at operation 0, 1, 2 …, until one survives; sends their exit codes."""
    torch.set_num_threads(1)
    job = Job()
    job.load(folder / "before")
    job.train(2)
    codes: list[int] = []
    while not codes or codes[-1]:
        here = folder / str(len(codes))
        shutil.copytree(folder / "before", here)
        child = os.fork()
        if not child:
            with pytest.MonkeyPatch.context() as patch:
                Disk(len(codes), lambda: os._exit(9)).install(patch)
                job.save(here, 3)
            os._exit(0)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    pipe.send(codes)


def test_a_process_that_dies_at_every_operation(tmp_path: Path) -> None:
    """The same with real processes, of which nothing is left but the files."""
    job = Job()
    for step in (1, 2):
        job.train(1)
        job.save(tmp_path / "before", step)
    old = job.learned()
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=_die_everywhere, args=(tmp_path, theirs))
    process.start()
    theirs.close()
    codes = ours.recv()
    process.join()
    assert codes == [9] * (len(codes) - 1) + [0]
    assert len(codes) > 25
    steps = []
    for number in range(len(codes)):
        loaded = Job()
        steps.append(loaded.load(tmp_path / str(number)).step)
        assert steps[-1] == 3 or same(loaded.learned(), old)
    assert steps == sorted(steps), "the previous one up to some operation, the new one from there on"
    assert set(steps) == {2, 3}


def _save_until(rank: int, group: dist.ProcessGroup, folder: Path, victim: int, number: int, background: bool) -> None:
    """Save steps 1 and 2; the victim dies in the second."""
    writing.PATIENCE_SECONDS = 1.0
    job = Job(rank, group)
    job.train(1)
    job.save(folder, 1)
    job.train(1)
    with pytest.MonkeyPatch.context() as patch:
        if rank == victim:
            Disk(number, lambda: os._exit(9)).install(patch)
        try:
            job.save(folder, 2, asynchronous=background).wait()
        except (CheckpointError, PeerError):
            pass
        else:
            assert rank != victim


def _resume(rank: int, group: dist.ProcessGroup, folder: Path) -> int:
    job = Job(rank, group)
    step = job.load(folder).step
    job.train(2)
    job.save(folder, 4)
    return step


@pytest.mark.parametrize(
    ("victim", "number", "background"), [(0, 9, False), (1, 7, False), (0, 30, True), (1, 7, True)]
)
def test_one_of_several_workers_dies(
    cluster: Cluster, tmp_path: Path, victim: int, number: int, background: bool
) -> None:
    dying = Cluster(2, sizes=(2,), timeout_seconds=60)
    try:
        results = dying.attempt(2, _save_until, tmp_path, victim, number, background)
        assert results == [None, None], f"one died, the other got a typed error, or could save: {results}"
        dying.processes[victim].join(60)
        assert dying.processes[victim].exitcode == 9
    finally:
        dying.close()
    steps = cluster.run(2, _resume, tmp_path)
    assert steps[0] == steps[1]
    assert steps[0] in (1, 2)
    assert max(os.listdir(tmp_path)) == "step-0000000004"
