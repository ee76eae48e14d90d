"""A stopped worker (SIGSTOP): all others name it soon after the time-out."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.paths import TRAIN
from tests.support.seeds import chance
from tests.support.torchrun import environment, free_port
from tests.support.train_script import Config, Fault

pytestmark = pytest.mark.slow

NUM_WORKERS = 4
TIMEOUT_SECONDS = 8.0


# Worker 0 keeps the store in which the living report: when it is the one, they must do without.
@pytest.mark.parametrize(("victim", "point"), [(2, "in vote"), (0, "in save")])
def test_all_others_name_it_in_time(victim: int, point: str, tmp_path: Path) -> None:
    fault = Fault(point, victim, chance(f"stopped {victim}").randint(1, 8), signal.SIGSTOP)
    print(fault)
    config = Config(folder=str(tmp_path), steps=10_000, every=4, faults=(fault,), timeout_seconds=TIMEOUT_SECONDS)
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(NUM_WORKERS)}
    workers = [_start(config, tmp_path / f"said-{rank}", RANK=str(rank), **place) for rank in range(NUM_WORKERS)]
    try:
        others = [rank for rank in range(NUM_WORKERS) if rank != victim]
        seconds = {rank: _named(tmp_path / f"said-{rank}", victim) - _stopped(tmp_path) for rank in others}
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    print(seconds)
    assert all(0 < each < 1.5 * TIMEOUT_SECONDS for each in seconds.values()), seconds


def _start(config: Config, said: Path, **variables: str) -> subprocess.Popen[bytes]:
    with said.open("w") as file:
        return subprocess.Popen([sys.executable, TRAIN, config.to_json()], env=environment(**variables), stderr=file)


def _stopped(folder: Path) -> float:
    return float((folder / "fault-0").read_text())


def _named(said: Path, victim: int) -> float:
    """When a worker raised its error; it must be about the victim."""
    deadline = time.monotonic() + 100
    while "errors.Peer" not in (text := said.read_text()):
        assert time.monotonic() < deadline, text
        time.sleep(0.02)
    found = time.monotonic()
    time.sleep(0.2)
    last = re.findall(r"errors\.(Peer\w+Error: .*)", said.read_text())[-1]
    assert re.match(rf"PeerTimeoutError: worker {victim} did not answer", last), said.read_text()
    return found
