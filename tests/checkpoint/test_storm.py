"""Workers and torchrun's agents killed at random, in jobs that follow one another in the same folder.

``LIONCUB_STORM_KILLS=30`` kills more often than every test run does.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from lioncub.checkpoint import values
from lioncub.checkpoint.folders import checkpoints
from lioncub.checkpoint.reading import Checkpoint
from tests.support.paths import TRAIN
from tests.support.seeds import chance
from tests.support.torchrun import LAUNCHER, children, seconds_until_gone, started
from tests.support.train_script import Config

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("LIONCUB_STORM_KILLS", "5"))
STEPS = 150 * KILLS
EVERY = 20
NUM_WORKERS = 2
START_SECONDS, TRAIN_SECONDS = 12.0, 2.0
"""A kill is at most so long after the start of an attempt, or after its first step."""
MOST_SECONDS = 10.0
"""How long an orphan may live."""
IMPORT_SECONDS = 60.0
"""How long one may still be importing torch, on a machine that has other things to do."""


def command(folder: Path, number: int, pause_seconds: float) -> list[str]:
    config = Config(
        folder=str(folder), steps=STEPS, every=EVERY, pause_seconds=pause_seconds, job=f"job {number}", keep=STEPS
    )
    options = ["--standalone", f"--nproc-per-node={NUM_WORKERS}", f"--max-restarts={KILLS}", "--monitor-interval=0.1"]
    return [*LAUNCHER, *options, TRAIN, config.to_json()]


def loads(folder: Path, rank: int) -> list[dict[str, Any]]:
    """What this worker has loaded, from the first job's first attempt on."""
    path = folder / f"loaded-{rank}"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Storm:
    """What has been killed, and how long orphans lived then."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.numbers: random.Random = chance("storm")
        self.kills: list[str] = []
        self.seconds: dict[str, list[float]] = {"starting": [], "training": []}

    def kill_until_the_agent_is_gone(self, agent: subprocess.Popen[str]) -> tuple[list[int], float]:
        """Returns the orphans, and when the agent was killed; none if there were kills enough before."""
        while len(self.kills) < KILLS:
            self.wait_for_a_moment(agent)
            assert agent.poll() is None, agent.communicate()[0]
            if workers := children(agent.pid):
                self.kills.append(self.numbers.choice(["agent", "worker"]))
                if self.kills[-1] == "agent":
                    agent.kill()
                    agent.wait()
                    return workers, time.monotonic()
                os.kill(self.numbers.choice(workers), signal.SIGKILL)
        return [], 0.0

    def wait_for_a_moment(self, agent: subprocess.Popen[str]) -> None:
        """While the workers start, load and connect, or while they train and save."""
        if self.numbers.random() < 0.3:
            return time.sleep(self.numbers.uniform(0, START_SECONDS))
        while agent.poll() is None and not self.have_trained(children(agent.pid)):
            time.sleep(0.05)
        return time.sleep(self.numbers.uniform(0, TRAIN_SECONDS))

    def have_trained(self, workers: list[int]) -> bool:
        """Whether all of them have loaded, or begun anew."""
        loaded = {line["pid"] for rank in range(NUM_WORKERS) for line in loads(self.folder, rank)}
        return len(workers) == NUM_WORKERS and loaded.issuperset(workers)

    def wait_for_the_end_of(self, orphans: list[int], killed: float) -> None:
        phase = "training" if self.have_trained(orphans) else "starting"
        seconds_until_gone(orphans)
        self.seconds[phase].append(time.monotonic() - killed)

    def run(self) -> int:
        """Jobs until there were kills enough; the next job starts while the orphans of the one before may live."""
        number, orphans, killed = 0, list[int](), 0.0
        while len(self.kills) < KILLS:
            number += 1
            with started(command(self.folder, number, 0.02)) as (agent,):
                if orphans:
                    self.wait_for_the_end_of(orphans, killed)
                orphans, killed = self.kill_until_the_agent_is_gone(agent)
        if orphans:
            self.wait_for_the_end_of(orphans, killed)
        return number


def finish(folder: Path, number: int) -> list[str]:
    """Run to the end; the digest of everything on every worker."""
    with started(command(folder, number, 0.0)) as (agent,):
        printed = agent.communicate(timeout=100 + STEPS / 20)[0]
    assert agent.returncode == 0, printed
    return [(folder / f"digest-{rank}").read_text() for rank in range(NUM_WORKERS)]


def check_loads(lines: list[dict[str, Any]]) -> None:
    """Within a job: the first loads what earlier jobs left, all others the same, or what their own job has saved."""
    for job, of_job in groupby(lines, key=lambda line: str(line["job"])):
        first, *others = of_job
        for line, before in zip(others, [first, *others], strict=False):
            assert line["step"] >= before["step"], lines
            assert line["by"] == job or (line["by"], line["step"]) == (first["by"], first["step"]), lines


@pytest.mark.timeout(300 + 60 * KILLS)
def test_a_job_never_loads_what_it_did_not_save(tmp_path: Path) -> None:
    (tmp_path / "undisturbed").mkdir()
    (tmp_path / "storm").mkdir()
    undisturbed = finish(tmp_path / "undisturbed", 1)
    storm = Storm(tmp_path / "storm")
    number = storm.run()
    print(f"{number} jobs, {storm.kills.count('worker')} workers and {storm.kills.count('agent')} agents killed")
    for phase, seconds in storm.seconds.items():
        print(f"orphans that were {phase}: {len(seconds)}, longest {max(seconds, default=0):.1f} s")
    assert finish(tmp_path / "storm", number + 1) == undisturbed
    assert max(storm.seconds["training"], default=0) < MOST_SECONDS
    assert max(storm.seconds["starting"], default=0) < MOST_SECONDS + IMPORT_SECONDS
    for rank in range(NUM_WORKERS):
        check_loads(loads(tmp_path / "storm", rank))
    savers = []
    for folder in checkpoints(tmp_path / "storm" / "checkpoints").values():
        checkpoint = Checkpoint.open(folder)
        assert not list(checkpoint.problems(lambda _: None))
        savers.append(int(values.from_json(checkpoint.manifest.extras[0])["job"].split()[1]))
    assert savers == sorted(savers), "no job has saved after the next one began"
