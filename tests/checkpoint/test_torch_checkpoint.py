"""torch's distributed checkpoint keeps one worker's optimizer state: momenta are averaged before it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from tests.support.checkpointing import Job
from tests.support.cluster import Cluster


def _momenta(job: Job) -> dict[str, Tensor]:
    return {name: job.optimizer.state[param]["exp_avg"].clone() for name, param in job.model.named_parameters()}


def _average(rank: int, group: dist.ProcessGroup, dtype: torch.dtype) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    job = Job(rank, group, momentum_dtype=dtype)
    job.model[0].weight.requires_grad_(False)
    job.train(3)
    job.model[0].weight.requires_grad_(True)
    before = _momenta(job)
    job.optimizer.synchronize_momentum()
    after = _momenta(job)
    job.train(2)
    return before, after


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_momenta_are_the_same_afterwards(cluster: Cluster, num_workers: int, dtype: torch.dtype) -> None:
    results = cluster.run(num_workers, _average, dtype)
    for name in results[0][0]:
        rows = torch.stack([before[name].float() for before, _ in results])
        assert num_workers == 1 or name == "0.weight" or not torch.equal(rows[0], rows[1])
        for _, after in results:
            assert torch.equal(after[name], results[0][1][name]), "bit for bit"
            expected = rows.double().mean(0).to(dtype)
            torch.testing.assert_close(after[name], expected, rtol=1e-6 if dtype == torch.float32 else 0.01, atol=1e-9)


def _begun(rank: int, group: dist.ProcessGroup) -> bool:
    """Averaging between backward and step calls the begun step off; the step then sends everything anew."""
    job = Job(rank, group)
    job.train(2)
    job.optimizer.zero_grad()
    job.model(torch.ones(4, 6)).sum().backward()
    job.optimizer.synchronize_momentum()
    before = job.learned()
    job.optimizer.step()
    return not torch.equal(before["0.weight"], job.learned()["0.weight"])


def test_a_step_that_was_begun_is_sent_anew(cluster: Cluster) -> None:
    assert cluster.run(2, _begun) == [True, True]


def _save_by_dcp(rank: int, group: dist.ProcessGroup, folder: Path) -> dict[str, Tensor]:
    job = Job(rank, group)
    job.train(3)
    job.optimizer.synchronize_momentum()
    state = {"model": job.model.state_dict(), "optimizer": job.optimizer.state_dict()}
    save(state, checkpoint_id=str(folder), process_group=group)
    return _momenta(job)


def _load_by_dcp(rank: int, group: dist.ProcessGroup, folder: Path) -> dict[str, Tensor]:
    job = Job(rank, group)
    state = {"model": job.model.state_dict(), "optimizer": job.optimizer.state_dict()}
    load(state, checkpoint_id=str(folder), process_group=group)
    job.model.load_state_dict(state["model"])
    job.optimizer.load_state_dict(state["optimizer"])
    momenta = _momenta(job)
    job.train(2)
    return momenta


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_a_round_trip_through_dcp(cluster: Cluster, tmp_path: Path) -> None:
    saved = cluster.run(2, _save_by_dcp, tmp_path)
    for loaded in cluster.run(2, _load_by_dcp, tmp_path):
        for name, momentum in loaded.items():
            assert torch.equal(momentum, saved[0][name])
            assert torch.equal(momentum, saved[1][name])
