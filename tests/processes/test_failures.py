"""Peers that die or hang in mid-exchange: a typed error on every live worker, in time, naming whom."""

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
from tests.cluster import Cluster, Failure

TIMEOUT_SECONDS = 4.0
VICTIM = 2

CASES: dict[str, dict[str, Any]] = {
    "two-phase": {"collective": "two-phase"},
    "two-phase, not overlapped": {"collective": "two-phase", "overlap": False},
    "collectives": {"collective": TwoPhase("collectives")},
    "gather": {"collective": "gather"},
    "server": {"collective": "server"},
    "sum": {"collective": "sum", "codec": Levels(8, grid="midtread")},
    "hierarchical": {"collective": Hierarchical(inner=2)},
    "momentum": {"momentum_sync": MomentumSync(every=1)},
    "dense": {"codec": Dense(torch.bfloat16)},
}
UNNAMED = {"collectives"}
"""The backend's own collectives do not say who is missing."""


def _train_until(rank: int, group: dist.ProcessGroup, settings: dict[str, Any], end: str) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 1))
    optimizer = DistributedLion(model.named_parameters(), 1e-3, bucket_numel=1000, **{"codec": Vote(), **settings})
    for step in range(6):
        optimizer.zero_grad()
        if step == 3 and rank == VICTIM:
            if end == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGSTOP)
        before = [p.detach().clone() for p in model.parameters()]
        momenta = [optimizer.state[p]["exp_avg"].clone() for p in model.parameters()]
        started = time.monotonic()
        try:
            model(torch.randn(4, 64)).sum().backward()
            optimizer.step()
        except Exception as problem:
            seconds = time.monotonic() - started
            assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))
            assert all(
                torch.equal(optimizer.state[p]["exp_avg"], m) for p, m in zip(model.parameters(), momenta, strict=True)
            )
            again = time.monotonic()
            with pytest.raises(type(problem), match="no exchange is possible"):
                optimizer.exchange()
            assert time.monotonic() - again < 1, "a broken group is not waited for again"
            return type(problem).__name__, str(problem), tuple(problem.ranks), seconds  # type: ignore[attr-defined]
    return "finished"


@pytest.mark.parametrize("end", ["dies", "hangs"])
@pytest.mark.parametrize("case", CASES)
def test_every_live_worker_raises_in_time(case: str, end: str) -> None:
    cluster = Cluster(4, timeout_seconds=TIMEOUT_SECONDS)
    try:
        survivors = [rank for rank in range(4) if rank != VICTIM]
        for rank in range(4):
            cluster.pipes[rank].send((_train_until, 4, (CASES[case], end)))
        for rank in survivors:
            assert cluster.pipes[rank].poll(6 * TIMEOUT_SECONDS), f"worker {rank} hangs"
            result = cluster.pipes[rank].recv()
            assert not isinstance(result, Failure), result.trace
            kind, text, ranks, seconds = result
            assert kind in ("PeerLostError", "PeerTimeoutError"), result
            assert seconds < TIMEOUT_SECONDS + 5
            if end == "dies":
                assert seconds < TIMEOUT_SECONDS, "a closed connection is seen at once"
            assert VICTIM in ranks, f"worker {rank} blames {ranks}: {text}"
            if case not in UNNAMED:
                assert ranks == (VICTIM,), f"worker {rank} blames {ranks}: {text}"
            assert f"{VICTIM}" in text
    finally:
        cluster.close()
