"""Network partitions: both sides stop, and none trains on alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lioncub.tools.lab.config import LabConfig
from lioncub.tools.lab.isolation import find_isolation
from lioncub.tools.lab.plan import plan_of
from lioncub.tools.lab.session import free_port, running
from tests.support.paths import TRAIN
from tests.support.torchrun import children
from tests.support.train_script import Config

pytestmark = pytest.mark.slow

ISOLATION = find_isolation()
HOSTS = 4
TIMEOUT_SECONDS = 6.0
OUTAGE_SECONDS = float(os.environ.get("LIONCUB_OUTAGE_SECONDS", "10"))
NEEDS_ROOT = pytest.mark.skipif(
    ISOLATION.name != "root", reason=f"needs root: the network here is {ISOLATION.name}, {ISOLATION.reason}"
)


def in_the_switch(lab: int, *commands: list[str]) -> None:
    """Commands of ``ip`` where the cables end. ``lab``: the process that has started the lab."""
    inside = children(lab)[0]
    for command in commands:
        subprocess.run(["nsenter", f"--net=/proc/{inside}/ns/net", "ip", *command], check=True)


def cut(lab: int, hosts: tuple[int, ...]) -> None:
    """Give some hosts' cables to a switch of their own."""
    ports = [f"port{host}" for host in hosts]
    in_the_switch(
        lab,
        ["link", "add", "br1", "type", "bridge"],
        ["link", "set", "br1", "up"],
        *(["link", "set", port, "master", "br1"] for port in ports),
    )


def wait_for_steps(folder: Path, least: int, seconds: float = 100) -> None:
    """Until every host has done so many."""
    deadline = time.monotonic() + seconds
    while min(steps_done(folder)) < least:
        assert time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.05)


def steps_done(folder: Path) -> list[int]:
    """By each host: it writes a line for every step."""
    files = [folder / f"watched-{host}" for host in range(HOSTS)]
    return [file.read_text().count("\n") if file.exists() else 0 for file in files]


@NEEDS_ROOT
@pytest.mark.parametrize("sides", [((0, 1), (2, 3)), ((1,), (0, 2, 3))], ids=["halves", "one"])
def test_both_sides_stop(tmp_path: Path, sides: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    config = Config(folder=str(tmp_path), steps=100_000, every=100_000, watch_every=1, timeout_seconds=TIMEOUT_SECONDS)
    command = (sys.executable, "-u", TRAIN, config.to_json())
    plan = plan_of(LabConfig(command=command, hosts=HOSTS, rate="1gbit"), networked=True, port=free_port(ISOLATION))
    with (tmp_path / "log").open("w+b") as log, running(plan, ISOLATION, log) as lab:
        wait_for_steps(tmp_path, 20)
        cut(lab.pid, sides[1])
        at_the_cut = steps_done(tmp_path)
        assert lab.wait(60) == 1
    said, done = (tmp_path / "log").read_text(), steps_done(tmp_path)
    assert max(done) <= max(at_the_cut) + 2, "nobody goes on"
    assert max(done) - min(done) <= 1
    for side, others in (sides, sides[::-1]):
        named: set[int] = set()
        for host in side:
            lines = re.findall(rf"\[host{host}\].*errors\.(Peer.*)", said)
            assert lines, f"host {host} did not say why it stopped: {said}"
            ranks = re.search(r"workers? ([\d, ]+)", lines[-1])
            assert ranks, lines
            named |= {int(rank) for rank in ranks[1].split(",")} - {host}
        # A cut in the middle of a step, and no store to compare notes in: one may name a neighbour that waits as well.
        assert named & set(others), said


@NEEDS_ROOT
def test_an_outage_that_is_shorter_than_the_time_out_is_survived(tmp_path: Path) -> None:
    """TCP sends again at growing intervals: what waits may wait for about as long again as the link was down."""
    timeout = 60 + 3 * OUTAGE_SECONDS
    config = Config(folder=str(tmp_path), steps=100_000, every=100_000, watch_every=1, timeout_seconds=timeout)
    command = (sys.executable, "-u", TRAIN, config.to_json())
    plan = plan_of(LabConfig(command=command, hosts=HOSTS, rate="1gbit"), networked=True, port=free_port(ISOLATION))
    with (tmp_path / "log").open("w+b") as log, running(plan, ISOLATION, log) as lab:
        wait_for_steps(tmp_path, 20)
        in_the_switch(lab.pid, ["link", "set", "port1", "down"])
        began = time.monotonic()
        time.sleep(OUTAGE_SECONDS)
        done = max(steps_done(tmp_path))
        in_the_switch(lab.pid, ["link", "set", "port1", "up"])
        wait_for_steps(tmp_path, done + 20, timeout)
        print(f"the link was down for {OUTAGE_SECONDS:g} s, training for {time.monotonic() - began:.1f} s")
        assert lab.poll() is None
    assert "Error" not in (tmp_path / "log").read_text()
