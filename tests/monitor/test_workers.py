"""A monitor on real workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from lioncub import DistributedLion
from lioncub.errors import ReplicasDifferError
from lioncub.live import End, Finding, Monitor, Reading
from lioncub.monitor.records import from_json
from tests.support.cluster import Cluster
from tests.support.small_model import loss_of, make_model


def _flip(rank: int, group: dist.ProcessGroup, folder: str, every_worker: bool) -> list[tuple[str, tuple[int, ...]]]:
    """Train under a monitor; after ten steps one bit of worker 1's parameters is another one."""
    model = make_model()
    optimizer = DistributedLion(model.named_parameters(), 1e-3, process_group=group)
    settings: dict[str, Any] = {"tensorboard": Path(folder, "runs"), "records": Path(folder, "live.jsonl")}
    try:
        with Monitor(optimizer, every=5, every_worker=every_worker, **settings) as monitor:
            for step in range(80):
                if step == 10 and rank == 1:
                    next(iter(model.parameters())).data.view(-1).view(torch.int32)[0] ^= 1
                optimizer.zero_grad()
                loss = loss_of(model, rank, step)
                loss.backward()
                optimizer.step()
                monitor.step(loss=loss.item())
    except ReplicasDifferError:
        return [(finding.signature, finding.workers) for finding in monitor.findings]
    raise AssertionError("different weights went unnoticed")


def test_replicas_that_differ_are_in_every_workers_records(cluster: Cluster, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    findings = cluster.run(2, _flip, str(tmp_path), True)
    assert [[found for found in worker if found[0] == "replicas differ"] for worker in findings] == [
        [("replicas differ", (1,))]
    ] * 2
    for records, runs in (("live.jsonl", "runs"), ("live.worker-1.jsonl", "runs/worker-1")):
        events = [from_json(text) for text in (tmp_path / records).read_text().splitlines()]
        readings = [event for event in events if isinstance(event, Reading)]
        for reading in readings:
            assert reading.exchange is not None
            assert reading.exchange.voters == 2
            assert reading.exchange.bytes_sent > 0
            assert 0.5 < (reading.exchange.agreement or 0) <= 1
            assert all(seconds > 0 for seconds in reading.parts().values())
        (finding,) = [e for e in events if isinstance(e, Finding) and e.signature == "replicas differ"]
        assert finding.step == readings[-1].step + 1
        assert "worker 1" in finding.message
        assert isinstance(events[-1], End)
        assert events[-1].error.startswith("ReplicasDifferError: ")

        stored = EventAccumulator(str(tmp_path / runs)).Reload()
        assert [point.step for point in stored.Scalars("time/wait_seconds")] == [reading.step for reading in readings]
        assert "findings/replicas_differ/text_summary" in stored.Tags()["tensors"]


def test_only_worker_0_writes_unless_asked(cluster: Cluster, tmp_path: Path) -> None:
    cluster.run(2, _flip, str(tmp_path), False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["live.jsonl", "runs"]
    assert len(list((tmp_path / "runs").iterdir())) == 1
