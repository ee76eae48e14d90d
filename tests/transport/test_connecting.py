"""Connecting: threads in place of workers, real sockets on loopback."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from lioncub.transport import connecting, sockets
from lioncub.transport.connecting import Offer, connect
from lioncub.transport.sockets import Mesh
from tests.support.torchrun import LAUNCHER, script, started, wait_for
from tests.transport.test_sockets import data, room

pytestmark = pytest.mark.skipif(bool(sockets.why_not()), reason=sockets.why_not())


class Meeting:
    """Threads for workers, and what they say to one another."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size)
        self.said: list[bytes] = [b""] * size

    def gather(self, worker: int) -> Callable[[bytes], list[bytes]]:
        def gather(said: bytes) -> list[bytes]:
            self.said[worker] = said
            self.barrier.wait(30)
            answers = list(self.said)
            self.barrier.wait(30)
            return answers

        return gather

    def connect(self, **others: Any) -> list[Mesh | None]:
        def one(worker: int) -> Mesh | None:
            return connect(self.gather(worker), worker, 30, **{key: value[worker] for key, value in others.items()})

        with ThreadPoolExecutor(self.size) as workers:
            return list(workers.map(one, range(self.size)))


@pytest.fixture
def on_loopback(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    return monkeypatch


@pytest.mark.parametrize("interface", ["lo", None])
def test_workers_connect(monkeypatch: pytest.MonkeyPatch, interface: str | None) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    if interface:
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", interface)
    found = [each for each in Meeting(4).connect() if each is not None]
    assert len(found) == 4
    got = room(4)
    waiting = found[0].post({}, {3: got}, 1)
    assert found[3].post({0: data(4)}, {}, 1).wait() is None
    assert waiting.wait() is None
    assert torch.equal(got, data(4))


def test_one_who_is_not_willing_or_not_able_has_all_use_the_backend(on_loopback: pytest.MonkeyPatch) -> None:
    assert Meeting(3).connect(willing=[True, False, True]) == [None] * 3
    on_loopback.setenv("GLOO_SOCKET_IFNAME", "no-such-interface")
    assert Meeting(3).connect() == [None] * 3
    on_loopback.setenv("GLOO_SOCKET_IFNAME", "lo")
    on_loopback.setattr(sockets, "_problem", "not built")
    assert Meeting(3).connect() == [None] * 3


def test_who_cannot_be_reached_has_all_use_the_backend_with_a_warning(on_loopback: pytest.MonkeyPatch) -> None:
    def closed_door(server: socket.socket) -> Offer:
        with socket.create_server(("127.0.0.1", 0)) as other:
            host, port = other.getsockname()
            return Offer(host, port, bytes(16))

    on_loopback.setattr(Offer, "to", closed_door)
    on_loopback.setattr(connecting, "PATIENCE_SECONDS", 1.0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert Meeting(2).connect() == [None] * 2
    assert any("worker 1 did not reach workers [0] by sockets of its own" in str(each.message) for each in said)


def test_unauthenticated_connections_are_refused(on_loopback: pytest.MonkeyPatch) -> None:
    intruders: list[socket.socket] = []
    to = Offer.to

    def visited(server: socket.socket) -> Offer:
        """Before any worker comes: who says nothing, who says nonsense, who has a wrong token, who leaves."""
        offer = to(server)
        for said in (
            b"",
            b"GET / HTTP/1.1\r\nHost: there\r\n\r\n",
            connecting._HELLO.pack(b"lcub", 1, 0, 1, bytes(16)),
            None,
        ):
            intruder = socket.create_connection((offer.host, offer.port))
            intruders.append(intruder)
            if said is None:
                intruder.close()
            else:
                intruder.sendall(said)
        return offer

    on_loopback.setattr(Offer, "to", visited)
    started = time.monotonic()
    found = [each for each in Meeting(2).connect() if each is not None]
    assert time.monotonic() - started < connecting.PATIENCE_SECONDS / 2, "nobody waits for those who say nothing"
    assert len(found) == 2
    got = room(4)
    waiting = found[0].post({}, {1: got}, 1)
    assert found[1].post({0: data(4)}, {}, 1).wait() is None
    assert waiting.wait() is None
    for intruder in intruders:
        intruder.close()


FLOOD = """
import resource, select, socket, sys, time
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
address, count, made = (sys.argv[1], int(sys.argv[2])), int(sys.argv[3]), []
for _ in range(count):
    made.append(socket.socket())
    made[-1].setblocking(False)
    made[-1].connect_ex(address)
print("made", flush=True)
sys.stdin.read()
"""
"""Connections that are begun and say nothing."""


@pytest.fixture
def flooded(on_loopback: pytest.MonkeyPatch) -> Iterator[None]:
    """Workers with 200 descriptors more than are open now, and five times as many connections before a worker comes."""
    floods: list[subprocess.Popen[str]] = []
    to = Offer.to

    def flooded(server: socket.socket) -> Offer:
        offer = to(server)
        command = [sys.executable, "-c", FLOOD, offer.host, str(offer.port), "1000"]
        floods.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        assert floods[-1].stdout is not None
        assert floods[-1].stdout.readline() == "made\n"
        return offer

    on_loopback.setattr(Offer, "to", flooded)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 200, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    for flood in floods:
        flood.communicate()


@pytest.mark.usefixtures("flooded")
def test_more_connections_that_say_nothing_than_descriptors_keep_nobody_waiting() -> None:
    meeting, gathered = Meeting(3), []
    gather = meeting.gather

    def timed(worker: int) -> Callable[[bytes], list[bytes]]:
        def gather_and_note(said: bytes) -> list[bytes]:
            answers = gather(worker)(said)
            gathered.append(time.monotonic())
            return answers

        return gather_and_note

    meeting.gather = timed  # type: ignore[method-assign]
    found = [each for each in meeting.connect() if each is not None]
    assert len(found) == 3
    assert max(gathered) - min(gathered) < 5, "from the offers to the end"


START = """
import os, resource, sys, time
from pathlib import Path
import torch, lioncub
from lioncub.transport.connecting import Offer

folder = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[2])))
to, began = Offer.to, []

def flooded(server):  # the port is open, and no worker knows of it
    offer = to(server)
    (folder / f"partial-{os.environ['RANK']}").write_text(str(offer.port))
    (folder / f"partial-{os.environ['RANK']}").rename(folder / f"port-{os.environ['RANK']}")
    while not (folder / "go").exists():
        time.sleep(0.02)
    began.append(time.monotonic())
    return offer

Offer.to = flooded
with lioncub.distributed.init("gloo") as world:
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8)
    optimizer = lioncub.DistributedLion(model.named_parameters(), lr=0.01, carrier="sockets")
    seconds = time.monotonic() - began[0]
    for _ in range(5):
        model(torch.randn(4, 8)).square().sum().backward()
        optimizer.step()
    os.write(1, f"started in {seconds} s\\n".encode())
"""
FLOOD_CONNECTIONS = int(os.environ.get("LIONCUB_FLOOD_CONNECTIONS", "2000"))
"""To each worker; 6,000 is the full size. Workers may have 1,024 descriptors."""


def seconds_to_start(folder: Path, num_connections: int, num_workers: int = 3) -> float:
    """Of real workers, each with so many connections before another worker comes, from then on."""
    folder.mkdir()
    path = script(folder / "start.py", START)
    options = ["--standalone", f"--nproc-per-node={num_workers}", path, str(folder), "1024"]
    floods: list[subprocess.Popen[str]] = []
    with started([*LAUNCHER, *options]) as [launcher]:
        try:
            for rank in range(num_workers if num_connections else 0):
                wait_for(folder / f"port-{rank}")
                port = (folder / f"port-{rank}").read_text()
                command = [sys.executable, "-c", FLOOD, "127.0.0.1", port, str(num_connections)]
                floods.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for flood in floods:
                assert flood.stdout is not None
                assert flood.stdout.readline() == "made\n"
            (folder / "go").touch()
            said, _ = launcher.communicate(timeout=100)
        finally:
            for flood in floods:
                flood.communicate()
    assert launcher.returncode == 0, said
    found = [float(line.split()[2]) for line in said.splitlines() if line.startswith("started in")]
    assert len(found) == num_workers, said
    return max(found)


@pytest.mark.slow
def test_connections_that_say_nothing_do_not_delay_the_start_of_real_workers(tmp_path: Path) -> None:
    """At worst until the time-out of 20 s, and then without sockets."""
    alone = seconds_to_start(tmp_path / "alone", 0)
    among = seconds_to_start(tmp_path / "among", FLOOD_CONNECTIONS)
    print(f"{FLOOD_CONNECTIONS} connections to each: started in {among:.2f} s, without them in {alone:.2f} s")
    assert among < alone + 5


def test_where_one_worker_cannot_make_its_connections_all_use_the_backend(on_loopback: pytest.MonkeyPatch) -> None:
    make, failures = Mesh.__init__, iter([False, True, False])

    def fail_once(self: Mesh, sockets: Any, timeout_seconds: float) -> None:
        if next(failures):
            for each in filter(None, sockets):
                each.close()
            raise RuntimeError("no descriptors")
        make(self, sockets, timeout_seconds)

    on_loopback.setattr(Mesh, "__init__", fail_once)
    with pytest.warns(UserWarning, match="no descriptors|could not make sockets") as said:
        assert Meeting(3).connect() == [None] * 3
    assert len(said) == 3, "all say so"


def test_a_group_with_a_short_time_out_falls_back_in_time(on_loopback: pytest.MonkeyPatch) -> None:
    patience: list[float] = []

    def impatient(*args: Any) -> dict[int, socket.socket]:
        patience.append(args[-1])
        raise OSError("nobody came")

    on_loopback.setattr(connecting, "_connect_pairs", impatient)
    with pytest.warns(UserWarning, match="nobody came"):
        assert Meeting(2).connect() == [None] * 2
    assert patience == [10.0, 10.0], "a third of the group's, so that none waits longer for another to give up"


def test_an_offer_of_another_version_is_none() -> None:
    offer = Offer("10.0.0.1", 1234, bytes(range(16)))
    assert Offer.unpack(offer.pack()) == offer
    assert Offer.unpack(bytes([99]) + offer.pack()[1:]) == Offer()
