"""Resharding from any number of workers to any other: the mean of the momenta is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from lioncub import Lion
from lioncub.checkpoint.resharding import Blend, heir, shares
from tests.support.checkpointing import Job, same
from tests.support.cluster import Cluster

SIZES = range(1, 17)


def resized(rows: Tensor, num_new: int) -> Tensor:
    """Momenta ``[workers, elements]`` on another number of workers."""
    new = []
    for worker in range(num_new):
        (first, _), *others = shares(len(rows), num_new, worker)
        mean = Blend(rows[first])
        for old, weight in others:
            mean.add(rows[old], weight)
        new.append(mean.result())
    return torch.stack(new)


def momenta(num_workers: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Of magnitudes that differ by many orders."""
    generator = torch.Generator().manual_seed(num_workers)
    rows = torch.randn(num_workers, 500, generator=generator, dtype=torch.float64)
    return (rows * torch.logspace(-12, 3, 500, dtype=torch.float64)).to(dtype)


@pytest.mark.parametrize("num_old", SIZES)
def test_means_are_kept_and_nothing_is_made_up(num_old: int) -> None:
    for num_new in SIZES:
        weights = torch.zeros(num_new, num_old, dtype=torch.float64)
        for worker in range(num_new):
            for old, weight in shares(num_old, num_new, worker):
                assert weight > 0
                weights[worker, old] += weight
            assert weights[worker, heir(shares(num_old, num_new, worker))] == weights[worker].max()
        torch.testing.assert_close(weights.sum(1), torch.ones(num_new, dtype=torch.float64), rtol=1e-15, atol=0)
        inherited = torch.full((num_old,), num_new / num_old, dtype=torch.float64)
        torch.testing.assert_close(weights.sum(0), inherited, rtol=1e-14, atol=0)
        rows = momenta(num_old)
        new = resized(rows, num_new)
        before, after = rows.double().mean(0), new.double().mean(0)
        assert ((after - before).abs() <= 1e-6 * rows.double().abs().mean(0)).all()
        for worker in range(num_new):
            mine = rows[[old for old, _ in shares(num_old, num_new, worker)]]
            assert (new[worker] >= mine.amin(0)).all(), "no smaller than the smallest it comes from"
            assert (new[worker] <= mine.amax(0)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("num_old", SIZES)
def test_growth_and_back_is_exact(num_old: int, dtype: torch.dtype) -> None:
    rows = momenta(num_old, dtype)
    rows[:, ::7] = -0.0
    for times in (1, 2, 3, 5, 7):
        back = resized(resized(rows, times * num_old), num_old)
        assert torch.equal(back.view(torch.uint8), rows.view(torch.uint8)), "to the bit"


# ---- on real workers ------------------------------------------------------------------------------------------------


def _save(rank: int, group: dist.ProcessGroup, folder: Path) -> dict[str, Tensor]:
    job = Job(rank, group)
    job.train(5)
    job.save(folder, 5)
    return job.everything()


def _load(rank: int, group: dist.ProcessGroup, folder: Path, save_to: Path | None = None) -> dict[str, Any]:
    job = Job(rank, group)
    job.train(1)
    loaded = job.load(folder)
    result = {"state": job.everything(), "loaded": loaded}
    if save_to:
        job.save(save_to, 5)
    job.train(3)  # parameters are fingerprinted, settings compared: these steps show that all workers agree
    return result


@pytest.mark.parametrize(("num_old", "num_new"), [(4, 2), (2, 3), (1, 4), (3, 1)])
def test_real_workers(cluster: Cluster, tmp_path: Path, num_old: int, num_new: int) -> None:
    old = cluster.run(num_old, _save, tmp_path)
    new = cluster.run(num_new, _load, tmp_path)
    momenta_of = [name for name in old[0] if name.endswith("exp_avg")]
    assert momenta_of
    for worker, result in enumerate(new):
        loaded, state = result["loaded"], result["state"]
        assert (loaded.step, loaded.num_workers, loaded.elastic) == (5, num_old, True)
        assert loaded.extras == tuple({"order": mine["order"].tolist()} for mine in old)
        assert loaded.extra == loaded.extras[heir(shares(num_old, num_new, worker))]
        for name in momenta_of:
            rows = torch.stack([mine[name].flatten() for mine in old])
            assert torch.equal(state[name].flatten(), resized(rows, num_new)[worker])
        assert torch.equal(state["0.weight"], old[0]["0.weight"])
        rows = torch.stack([mine["1.running_var"] for mine in old])
        assert torch.equal(state["1.running_var"], resized(rows, num_new)[worker])
        assert state["1.num_batches_tracked"] == 5
        assert state["0.step"] == 5
    generators = {tuple(result["state"]["torch"].tolist()) for result in new}
    assert len(generators) == num_new, "every worker draws numbers of its own"
    again = cluster.run(num_new, _load, tmp_path)
    assert all(same(a["state"], b["state"]) for a, b in zip(new, again, strict=True)), "the same numbers every time"


def test_growth_and_back_on_real_workers(cluster: Cluster, tmp_path: Path) -> None:
    old = cluster.run(2, _save, tmp_path / "two")
    cluster.run(6, _load, tmp_path / "two", tmp_path / "six")
    back = cluster.run(2, _load, tmp_path / "six")
    for mine, result in zip(old, back, strict=True):
        for name in mine:
            if name.endswith(("exp_avg", "weight", "bias", "running_mean", "running_var")):
                assert torch.equal(result["state"][name], mine[name]), name


def test_to_plain_lion_and_back(cluster: Cluster, tmp_path: Path) -> None:
    old = cluster.run(3, _save, tmp_path / "three")
    plain = Job(make=Lion)
    plain.load(tmp_path / "three")
    for name, param in plain.model.named_parameters():
        rows = torch.stack([mine[f"{name}.exp_avg"] for mine in old])
        torch.testing.assert_close(plain.optimizer.state[param]["exp_avg"], rows.double().mean(0).float())
    plain.train(2)
    plain.save(tmp_path / "one", 7)
    expected = plain.everything()
    for result in cluster.run(3, _load, tmp_path / "one"):
        for name, _ in plain.model.named_parameters():
            assert torch.equal(result["state"][f"{name}.exp_avg"], expected[f"{name}.exp_avg"])
            assert torch.equal(result["state"][name], expected[name])
