"""A disk that is full when a checkpoint is saved in the background: training goes on, and all workers are told why."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.torchrun import LAUNCHER, environment, script

pytestmark = pytest.mark.slow

TRAIN = """
import itertools, json, os, sys, time
import torch
from torch import nn
import lioncub
from lioncub import checkpoint
from lioncub.checkpoint import writing
from lioncub.errors import CheckpointError

write = writing.Job.write

def write_later(job):
    time.sleep(1)  # the other worker's files have room, and this one's have not
    return write(job)

with lioncub.distributed.init("gloo") as world:
    if world.rank == 1:
        writing.Job.write = write_later
    torch.manual_seed(0)
    model = nn.Linear(512, 512)  # 1 MiB: a checkpoint of two workers is 3, and the disk 5.5
    lion = lioncub.DistributedLion(model.named_parameters(), 1e-3)
    times, said = [], ""
    try:
        with lioncub.resume(sys.argv[1], model, lion, every=10, keep=1) as run:
            for step in run.steps(40):
                lion.zero_grad()
                model(torch.randn(4, 512)).square().mean().backward()
                lion.step()
                times.append(time.monotonic())
    except CheckpointError as problem:
        said = str(problem)
    longest = max(b - a for a, b in itertools.pairwise(times))
    told = {"step": run.step, "longest": longest, "said": said, "latest": checkpoint.latest(sys.argv[1])}
    os.write(1, (json.dumps(told) + "\\n").encode())
"""
NUM_WORKERS = 2
INSIDE = ("unshare", "--map-root-user", "--mount", "--", "sh", "-c")
MOUNT = 'mount -t tmpfs -o size="$1" tmpfs "$2" && shift 2 && exec "$@"'


def can_mount(folder: Path) -> bool:
    try:
        return subprocess.run([*INSIDE, MOUNT, "sh", "1m", str(folder), "true"], capture_output=True).returncode == 0
    except OSError:
        return False


def test_training_goes_on_and_all_are_told(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if not can_mount(disk):
        pytest.skip("no file system can be mounted here: unshare or tmpfs is not allowed")
    path = script(tmp_path / "train.py", TRAIN)
    command = [*LAUNCHER, "--standalone", f"--nproc-per-node={NUM_WORKERS}", path, str(disk / "run")]
    done = subprocess.run(
        [*INSIDE, MOUNT, "sh", "5632k", str(disk), *command],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=280,
        check=True,
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == NUM_WORKERS
    for worker in told:
        assert worker["step"] == 40, "training went on to the end"
        assert worker["longest"] < 20, "no step waits for a save that cannot be"
        assert worker["latest"] == 10, "the first checkpoint, which had room, is as it was"
        assert "No space left on device" in worker["said"]
    warned = [line for line in done.stderr.splitlines() if "an earlier checkpoint was not saved" in line]
    assert len(warned) == 2 * NUM_WORKERS, done.stderr
    assert all("No space left on device" in line for line in warned)
