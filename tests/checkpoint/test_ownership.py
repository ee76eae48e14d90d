"""A folder of checkpoints belongs to one job: locks, leases, their loss, and the error of a second job."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from torch import nn

import lioncub
from lioncub import Lion, checkpoint
from lioncub.checkpoint import leases, locks, ownership
from lioncub.checkpoint.owner import RECORD_BYTES, Owner
from lioncub.checkpoint.ownership import owner_file
from lioncub.errors import CheckpointInUseError
from tests.support.torchrun import environment, script

HOLDER = """
import errno, os, sys, time
import torch
from torch import nn
from lioncub import Lion, checkpoint
from lioncub.checkpoint import leases, locks

if sys.argv[2] == "lease":
    leases.BEAT_SECONDS = 0.1
    locks.set_lock = lambda *_: (_ for _ in ()).throw(OSError(errno.ENOLCK, "No locks available"))
model = nn.Linear(1, 1)
checkpoint.save(sys.argv[1], model, Lion(model.parameters()), 1)
if not os.fork():  # as a DataLoader's worker, which lives on for a while
    time.sleep(100)
print("saved", flush=True)
time.sleep(100)
"""
WAYS = ["lock", "lease"]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """By a lock, and where the file system has none."""
    monkeypatch.setattr(ownership, "PATIENCE_SECONDS", 0.5)
    if request.param == "lease":
        monkeypatch.setattr(leases, "BEAT_SECONDS", 0.1)
        monkeypatch.setattr(locks, "set_lock", _no_locks)
    return str(request.param)


def _no_locks(descriptor: int, kind: int) -> bool:
    raise OSError(errno.ENOLCK, "No locks available")


@contextmanager
def holder(folder: Path, tmp_path: Path, way: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that has saved to the folder, and its child."""
    command = [sys.executable, script(tmp_path / "holder.py", HOLDER), str(folder), way]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "saved\n"
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def save(folder: Path, step: int) -> None:
    model = nn.Linear(1, 1)
    checkpoint.save(folder, model, Lion(model.parameters()), step)


def test_the_second_is_told_who_has_it(tmp_path: Path, way: str) -> None:
    folder = tmp_path / "run"
    with holder(folder, tmp_path, way) as process:
        says = f"run belongs to worker 0 .* process {process.pid} on"
        with pytest.raises(CheckpointInUseError, match=says):
            save(folder, 2)
        with pytest.raises(CheckpointInUseError, match=says):
            resume(folder)
        assert checkpoint.latest(folder) == 1
        model = nn.Linear(1, 1)
        assert checkpoint.load(folder, model, Lion(model.parameters())).step == 1, "reading is free"


def resume(folder: Path) -> None:
    model = nn.Linear(1, 1)
    with lioncub.resume(folder, model, Lion(model.parameters())):
        pass


def test_whoever_is_killed_loses_it_at_once(tmp_path: Path, way: str) -> None:
    folder = tmp_path / "run"
    with holder(folder, tmp_path, way) as process:
        process.kill()
        process.wait()
        save(folder, 2)
    assert checkpoint.latest(folder) == 2


def test_a_run_that_has_ended_gives_it_up(tmp_path: Path, way: str) -> None:
    folder = tmp_path / "run"
    resume(folder)
    with holder(folder, tmp_path, way):
        assert checkpoint.latest(folder) == 1


def test_release_gives_it_up(tmp_path: Path, way: str) -> None:
    folder = tmp_path / "run"
    save(folder, 0)
    checkpoint.release(folder)
    checkpoint.release(folder)
    with holder(folder, tmp_path, way):
        assert checkpoint.latest(folder) == 1


def test_reading_the_record_does_not_lose_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    save(folder, 0)
    shutil.copytree(folder, tmp_path / "copy")
    ask = "import sys; from pathlib import Path; from lioncub.checkpoint.locks import Owner, take_lock; "
    ask += "print(take_lock(Path(sys.argv[1]), Owner.here('other', 0)))"
    command = [sys.executable, "-c", ask, str(owner_file(folder))]
    assert subprocess.run(command, env=environment(), capture_output=True, text=True).stdout == "None\n"


def test_a_folder_that_was_taken_is_not_written_to(tmp_path: Path, way: str) -> None:
    folder = tmp_path / "run"
    save(folder, 0)
    leases.write_record(owner_file(folder), Owner.here("thief", 3))
    with pytest.raises(CheckpointInUseError, match=r"worker 3 of another job.* has taken it from this job"):
        save(folder, 1)
    assert checkpoint.latest(folder) == 0
    checkpoint.release(folder)


def test_a_folder_that_was_removed_is_taken_again(tmp_path: Path, way: str) -> None:
    folder = tmp_path / "run"
    save(folder, 0)
    shutil.rmtree(folder)
    save(folder, 1)
    assert checkpoint.latest(folder) == 1


@pytest.mark.parametrize("record", [b"", b"\0" * RECORD_BYTES, b"[1]", b'{"job": "other"}'])
def test_what_is_no_record_is_overwritten(tmp_path: Path, way: str, record: bytes) -> None:
    (owner_file(tmp_path)).write_bytes(record)
    save(tmp_path, 1)
    assert Owner.read(owner_file(tmp_path)) is not None


def test_a_process_holds_only_so_many(tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "MOST_FOLDERS", 3)
    monkeypatch.setattr(ownership, "_held", {})
    for number in range(6):
        save(tmp_path / str(number), 1)
    assert [path.name for path in ownership._held] == ["3", "4", "5"]


# ---- leases: who may be somewhere else ------------------------------------------------------------------------------


def elsewhere(beat: int = 0) -> Owner:
    return Owner(
        job="other", worker=0, host="far", process=1, machine="another boot", started="1", since="then", beat=beat
    )


def test_a_lease_runs_out_when_nothing_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.3)
    path, mine = owner_file(tmp_path), Owner.here("mine", 0)
    for beat in range(4):
        leases.write_record(path, elsewhere(beat))
        assert leases.take_lease(path, mine) is None
        time.sleep(0.2)
    assert leases.take_lease(path, mine) is None
    time.sleep(0.4)
    lease = leases.take_lease(path, mine)
    assert lease is not None
    lease.close()


def test_an_owner_counts_while_it_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "BEAT_SECONDS", 0.02)
    path = owner_file(tmp_path)
    lease = leases.take_lease(path, Owner.here("mine", 0))
    assert lease is not None
    deadline = time.monotonic() + 20
    while (there := Owner.read(path)) is None or there.beat < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    lease.close()
    assert not path.exists()


def test_processes_that_are_gone_are_told_from_those_that_are_not() -> None:
    here = Owner.here("mine", 0)
    assert not here.is_gone
    assert not elsewhere().is_gone, "nobody can know"
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    again = {name: getattr(here, name) for name in ("job", "worker", "host", "machine", "since")}
    assert Owner(**again, process=ended.pid, started="1").is_gone
    assert Owner(**again, process=os.getpid(), started="1").is_gone, "its number is used again"
