"""Rendezvous under two agents that count their restarts differently."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.torchrun import LAUNCHER, free_port, script, started

pytestmark = pytest.mark.slow

NODES, WORKERS = 2, 2
KILLS = (0, 3)
"""The rank that dies in each attempt: one of either node."""

TRAIN = f"""
import os, signal, sys
from datetime import timedelta
from pathlib import Path
import torch, torch.distributed as dist
import lioncub

with lioncub.distributed.init("gloo", timeout=timedelta(seconds=20)) as world:
    total = torch.ones(1)
    dist.all_reduce(total)
    for kill, victim in enumerate({KILLS}):
        mark = Path(sys.argv[1]) / str(kill)
        if not mark.exists():
            dist.barrier()
            if world.rank == victim:
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            dist.barrier()
            raise SystemExit("the victim is alive")
    said = f"worker {{world.rank}}: {{total.item():.0f}} after {{os.environ['TORCHELASTIC_RESTART_COUNT']}} restarts\\n"
    os.write(1, said.encode())
    dist.barrier()
"""


def meeting(way: str, node: int, port: int) -> list[str]:
    if way == "static":
        return ["--node-rank", str(node), "--master-addr", "127.0.0.1", "--master-port", str(port)]
    return [
        "--rdzv-backend",
        way,
        "--rdzv-endpoint",
        f"127.0.0.1:{port}",
        "--rdzv-id",
        "job",
        "--local-addr",
        "127.0.0.1",
    ]


@pytest.mark.parametrize("way", ["c10d", "static"])
def test_workers_killed_on_either_node(way: str, tmp_path: Path) -> None:
    path, port = script(tmp_path / "train.py", TRAIN), free_port()
    options = [
        "--nnodes",
        str(NODES),
        "--nproc-per-node",
        str(WORKERS),
        "--max-restarts",
        "5",
        "--monitor-interval=0.1",
    ]
    commands = [[*LAUNCHER, *options, *meeting(way, node, port), path, str(tmp_path)] for node in range(NODES)]
    with started(*commands) as agents:
        printed = [agent.communicate(timeout=100)[0] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], printed
    assert "".join(printed).count(f": {NODES * WORKERS} after") == NODES * WORKERS, printed
