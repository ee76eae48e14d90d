"""Connections from outside to the ports of workers that train: they train on."""

from __future__ import annotations

import os
import resource
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import pytest

from tests.support.torchrun import LAUNCHER, free_port, script, started

CONNECTIONS = int(os.environ.get("LIONCUB_FLOOD_CONNECTIONS", "1200"))
"""To each port: more than a process may have descriptors by default. 5,000 is the full size."""

TRAIN = """
import os, resource, socket, sys, time
from pathlib import Path
import torch, torch.distributed as dist, lioncub

def ports():  # that this process listens on
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            own = socket.socket(fileno=os.dup(int(number)))
        except OSError:
            continue
        if own.family != socket.AF_UNIX and own.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            found.append(own.getsockname()[1])
    return found

folder, soft, hard = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
with lioncub.distributed.init("gloo") as world:
    with lioncub.distributed.closing_ports():
        later = dist.new_group(range(world.size))
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8)
    optimizer = lioncub.DistributedLion(model.named_parameters(), lr=0.01)
    (folder / f"partial-{world.rank}").write_text(" ".join(map(str, ports())))
    (folder / f"partial-{world.rank}").rename(folder / f"ports-{world.rank}")
    while not (folder / "go").exists():
        time.sleep(0.02)
    for step in range(20):
        model(torch.randn(4, 8)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(torch.ones(8), group=later)
    del later  # its threads end with the last reference; one that outlives the interpreter aborts the process
    print(f"worker {world.rank} trained", flush=True)
"""


def ports_of(folder: Path, num_workers: int) -> list[list[int]]:
    deadline = time.monotonic() + 200
    files = [folder / f"ports-{rank}" for rank in range(num_workers)]
    while not all(file.exists() for file in files):
        assert time.monotonic() < deadline, "workers did not start"
        time.sleep(0.05)
    return [list(map(int, file.read_text().split())) for file in files]


@contextmanager
def connections(ports: list[int], count: int) -> Iterator[list[socket.socket]]:
    """To each port so many, which say nothing; those that it refuses are left out."""
    made = []
    try:
        for port in ports:
            for _ in range(count):
                try:
                    made.append(socket.create_connection(("127.0.0.1", port), timeout=5))
                except OSError:
                    break
        yield made
    finally:
        for each in made:
            each.close()


@pytest.fixture
def descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("descriptors")
def test_no_worker_that_trains_has_an_open_port(tmp_path: Path) -> None:
    options = ["--standalone", "--nproc-per-node=2", script(tmp_path / "train.py", TRAIN), str(tmp_path), "512", "512"]
    with started([*LAUNCHER, *options]) as [launcher]:
        ports = ports_of(tmp_path, 2)
        with connections([*chain(*ports)], CONNECTIONS):
            time.sleep(0.5)
            (tmp_path / "go").touch()
            said, _ = launcher.communicate(timeout=100)
    assert launcher.returncode == 0, said
    assert said.count("trained") == 2
    assert ports == [[], []]


@pytest.mark.slow
@pytest.mark.usefixtures("descriptors")
def test_the_worker_that_keeps_the_store_trains_on_under_connections_to_it(tmp_path: Path) -> None:
    place = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    code = script(tmp_path / "train.py", TRAIN)
    command = [sys.executable, code, str(tmp_path), "512", str(resource.getrlimit(resource.RLIMIT_NOFILE)[1])]
    commands = [["env", f"RANK={rank}", *command] for rank in range(2)]
    with started(*commands, **place) as workers:
        ports = ports_of(tmp_path, 2)
        assert ports == [[int(place["MASTER_PORT"])], []]
        with connections(ports[0], CONNECTIONS) as made:
            assert len(made) == CONNECTIONS
            (tmp_path / "go").touch()
            said = [worker.communicate(timeout=100)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], said
