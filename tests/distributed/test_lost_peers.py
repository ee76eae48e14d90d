"""Peers that die or hang during an exchange: a typed error on every live worker, in time, with the rank."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from lioncub import Dense, DistributedLion, Hierarchical, Levels, MomentumSync, TwoPhase, Vote
from lioncub.distributed.failure_detection import DOUBT_SECONDS
from lioncub.errors import PeerError
from tests.support.cluster import Cluster, Failure

TIMEOUT_SECONDS = 3.0
VICTIM = 2
SLOW = 1
"""Late, but innocent."""

CASES: dict[str, dict[str, Any]] = {
    "two-phase": {"collective": "two-phase"},
    "two-phase, by the backend": {"collective": "two-phase", "carrier": "backend"},
    "two-phase, not overlapped": {"collective": "two-phase", "overlap": False},
    "collectives": {"collective": TwoPhase("collectives")},
    "gather": {"collective": "gather"},
    "server": {"collective": "server"},
    "sum": {"collective": "sum", "codec": Levels(8, grid="midtread")},
    "hierarchical": {"collective": Hierarchical(inner=2)},
    "momentum": {"momentum_sync": MomentumSync(every=1)},
    "dense": {"codec": Dense(torch.bfloat16)},
}


def _end(how: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL if how == "dies" else signal.SIGSTOP)


# After backward, early buckets have left and others have not: some workers feel the victim's silence through others.
def _train_until(rank: int, group: dist.ProcessGroup, settings: dict[str, Any], how: str, moment: str) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 1))
    if rank == VICTIM and moment == "in construction":
        _end(how)
    started = time.monotonic()
    try:
        options = {"codec": Vote(), "process_group": group, "bucket_numel": 1000, **settings}
        optimizer = DistributedLion(model.named_parameters(), 1e-3, **options)
    except PeerError as problem:
        return type(problem).__name__, str(problem), problem.ranks, time.monotonic() - started
    for step in range(6):
        optimizer.zero_grad()
        if step == 3 and rank == VICTIM and moment == "before backward":
            _end(how)
        if step == 3 and rank == SLOW:
            time.sleep(1)
        before = [p.detach().clone() for p in model.parameters()]
        momenta = [optimizer.state[p]["exp_avg"].clone() for p in model.parameters()]
        started = time.monotonic()
        try:
            model(torch.randn(4, 64)).sum().backward()
            if step == 3 and rank == VICTIM and moment == "after backward":
                _end(how)
            optimizer.step()
        except PeerError as problem:
            seconds = time.monotonic() - started
            assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))
            assert all(
                torch.equal(optimizer.state[p]["exp_avg"], m) for p, m in zip(model.parameters(), momenta, strict=True)
            )
            again = time.monotonic()
            with pytest.raises(type(problem), match="no exchange is possible"):
                optimizer.exchange()
            assert time.monotonic() - again < 1, "a broken group is not waited for again"
            dist.destroy_process_group()  # what the end of the process does: connections to the living close as well
            return type(problem).__name__, str(problem), problem.ranks, seconds
    return "finished"


@pytest.mark.parametrize("how", ["dies", "hangs"])
@pytest.mark.parametrize(
    ("case", "moment"),
    [
        *((case, "after backward") for case in CASES),
        ("two-phase", "before backward"),
        ("collectives", "before backward"),
        ("two-phase", "in construction"),
    ],
)
def test_every_live_worker_names_the_victim_in_time(case: str, moment: str, how: str) -> None:
    cluster = Cluster(4, sizes=(4,), timeout_seconds=TIMEOUT_SECONDS)
    try:
        for rank in range(4):
            cluster.pipes[rank].send((_train_until, 4, (CASES[case], how, moment)))
        for rank in (rank for rank in range(4) if rank != VICTIM):
            assert cluster.pipes[rank].poll(8 * TIMEOUT_SECONDS), f"worker {rank} hangs"
            result = cluster.pipes[rank].recv()
            assert not isinstance(result, Failure), result.trace
            kind, text, ranks, seconds = result
            assert kind in ("PeerLostError", "PeerTimeoutError"), result
            assert seconds < TIMEOUT_SECONDS + DOUBT_SECONDS + 2
            assert ranks == (VICTIM,), f"worker {rank} blames {ranks}: {text}"
            assert f"worker {VICTIM}" in text
            if how == "dies":
                assert kind == "PeerLostError", "a closed connection is seen at once"
    finally:
        cluster.close()
