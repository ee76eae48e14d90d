"""The workers of a killed torchrun agent end by themselves, and own their folder until then."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from lioncub import checkpoint
from lioncub.checkpoint.reading import Checkpoint
from tests.support.paths import TRAIN
from tests.support.torchrun import LAUNCHER, children, seconds_until_gone, started, torchrun, wait_for
from tests.support.train_script import Config

pytestmark = pytest.mark.slow

NUM_WORKERS = 2
MOST_SECONDS = 10.0


def job(folder: Path, name: str, steps: int = 100_000, **settings: Any) -> list[str]:
    config = Config(folder=str(folder), steps=steps, every=10, pause_seconds=0.02, job=name, keep=1000, **settings)
    options = ["--standalone", f"--nproc-per-node={NUM_WORKERS}"]
    return [*LAUNCHER, *options, "--monitor-interval=0.1", TRAIN, config.to_json()]


def kill_agent(agent: Popen[str]) -> tuple[int, ...]:
    """Returns the orphans."""
    orphans = tuple(children(agent.pid))
    assert orphans
    agent.kill()
    agent.wait()
    return orphans


def test_orphans_save_and_end(tmp_path: Path) -> None:
    with started(job(tmp_path, "first")) as (agent,):
        wait_for(tmp_path / "checkpoints" / "step-0000000020")
        seconds = seconds_until_gone(kill_agent(agent))
    assert seconds < MOST_SECONDS
    step = checkpoint.latest(tmp_path / "checkpoints")
    assert step is not None
    folder = tmp_path / "checkpoints" / f"step-{step:010}"
    assert not list(Checkpoint.open(folder).problems(lambda _: None))
    done = torchrun(TRAIN, *job(tmp_path, "next", steps=step + 20)[-1:], num_workers=NUM_WORKERS)
    assert done.returncode == 0, done.stderr
    loaded = [json.loads(line) for line in (tmp_path / "loaded-1").read_text().splitlines()]
    assert loaded[-1] | {"pid": 0} == {"job": "next", "by": "first", "step": step, "pid": 0}, "nothing is lost"


@pytest.mark.parametrize("private_store", ["0", "1"], ids=["the agent's store", "a worker's store"])
def test_orphans_that_are_still_starting_end(tmp_path: Path, private_store: str) -> None:
    start = tmp_path / "start"
    command = job(tmp_path, "first", start_file=str(start))
    with started(command, TORCH_DISABLE_SHARE_RDZV_TCP_STORE=private_store) as (agent,):
        while len(children(agent.pid)) < NUM_WORKERS:
            time.sleep(0.01)
        orphans = kill_agent(agent)
        start.touch()
        seconds_until_gone(orphans)
    assert not (tmp_path / "loaded-0").exists(), "none has trained"


def test_a_second_job_is_told_whose_the_folder_is(tmp_path: Path) -> None:
    with started(job(tmp_path, "first")) as (agent,):
        wait_for(tmp_path / "checkpoints" / "step-0000000010")
        holder = children(agent.pid)
        second = torchrun(TRAIN, *job(tmp_path, "second", patience_seconds=5.0)[-1:], num_workers=NUM_WORKERS)
        assert agent.poll() is None, "the first goes on"
        os.kill(agent.pid, signal.SIGTERM)
        printed = agent.communicate(timeout=60)[0]
    assert "CheckpointError" not in printed, printed
    assert second.returncode != 0
    assert "CheckpointInUseError" in second.stderr
    assert any(f"process {process} on" in second.stderr for process in holder), second.stderr
    assert "second" not in (tmp_path / "loaded-0").read_text()
