"""``lioncub.distributed.init()`` in real processes: listening interfaces, and the names of missing workers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.torchrun import environment, free_port, script, torchrun

LISTENING = """
import os
from pathlib import Path

def listening():
    own = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            own.add(os.readlink(entry))
        except OSError:
            pass
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                found.append(".".join(map(str, bytes.fromhex(fields[1].split(":")[0])[::-1])))
    return found
"""

SUM = (
    LISTENING
    + """
import sys, torch, torch.distributed as dist, lioncub

listen = sys.argv[1] if len(sys.argv) > 1 else None
with lioncub.distributed.init("gloo", listen=listen) as world:
    total = torch.ones(1)
    dist.all_reduce(total)
    later = dist.new_group(range(world.size))
    dist.all_reduce(total, group=later)
    os.write(1, f"worker {world.rank} of {world.size}: {total.item():.0f}, listens on {listening()}\\n".encode())
assert not dist.is_initialized()
"""
)

IMPATIENT = """
import sys
from datetime import timedelta
import lioncub

lioncub.distributed.init("gloo", timeout=timedelta(seconds=float(sys.argv[1])))
"""

DIES_WHILE_CONNECTING = """
import os, signal, sys
from datetime import timedelta
import torch.distributed as dist
import lioncub

if os.environ["RANK"] == "2":
    dist.init_process_group = lambda *args, **kwargs: os.kill(os.getpid(), signal.SIGKILL)
lioncub.distributed.init("gloo", timeout=timedelta(seconds=float(sys.argv[1])))
"""


def listened_on(printed: str) -> list[str]:
    return re.findall(r"'([\d.]+)'", printed)


@pytest.mark.parametrize("listen", [(), ("loopback",), ("127.0.0.1",), ("lo",)])
def test_workers_of_one_machine_listen_on_loopback_only(listen: tuple[str, ...], tmp_path: Path) -> None:
    done = torchrun(script(tmp_path / "sum.py", SUM), *listen)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("of 2: 4, listens on") == 2
    assert set(listened_on(done.stdout)) == {"127.0.0.1"}


def one_by_one(path: str, size: int, ranks: tuple[int, ...], *arguments: str) -> list[tuple[int, str]]:
    """Workers without torchrun: the first keeps the store itself. Their exit codes and outputs."""
    place = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(size)}
    workers = [
        subprocess.Popen(
            [sys.executable, path, *arguments],
            env=environment(RANK=str(rank), **place),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in ranks
    ]
    outputs = [worker.communicate(timeout=100)[0] for worker in workers]
    return [(worker.returncode, output) for worker, output in zip(workers, outputs, strict=True)]


def test_the_store_of_the_first_worker_listens_on_loopback_only(tmp_path: Path) -> None:
    results = one_by_one(script(tmp_path / "sum.py", SUM), 2, (0, 1))
    assert [code for code, _ in results] == [0, 0], results
    assert len(listened_on(results[0][1])) > len(listened_on(results[1][1])), "the store is among them"
    assert {address for _, printed in results for address in listened_on(printed)} == {"127.0.0.1"}


def test_a_worker_that_never_arrives_is_named_by_all(tmp_path: Path) -> None:
    for code, printed in one_by_one(script(tmp_path / "wait.py", IMPATIENT), 4, (0, 1, 3), "4"):
        assert code == 1
        assert "PeerTimeoutError: worker 2 did not answer within the time-out" in printed


def test_the_first_worker_that_never_arrives_is_named(tmp_path: Path) -> None:
    for code, printed in one_by_one(script(tmp_path / "wait.py", IMPATIENT), 3, (1, 2), "2"):
        assert code == 1
        assert "PeerTimeoutError: worker 0 did not answer within the time-out" in printed


def test_a_worker_that_dies_while_others_connect_is_named(tmp_path: Path) -> None:
    results = one_by_one(script(tmp_path / "die.py", DIES_WHILE_CONNECTING), 4, (0, 1, 2, 3), "4")
    for rank, (code, printed) in enumerate(results):
        assert code == (-9 if rank == 2 else 1)
        if rank != 2:
            assert re.search("Peer(Timeout|Lost)Error: .*worker 2[ :]", printed), printed
