"""Training that was stopped and resumed equals training that never stopped, bit for bit, on real workers."""

from __future__ import annotations

import io
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from lioncub import Levels
from lioncub.checkpoint import disk
from lioncub.errors import CheckpointError, CheckpointWarning
from tests.support.checkpointing import Job, listing, same
from tests.support.cluster import Cluster, Failure


def _straight(rank: int, group: dist.ProcessGroup, folder: Path, asynchronous: bool) -> tuple[dict[str, Tensor], Any]:
    job = Job(rank, group)
    job.train(7)
    saving = job.save(folder, 7, asynchronous=asynchronous)
    job.train(7)
    saving.wait()
    return job.everything(), job.losses[7:]


def _resumed(rank: int, group: dist.ProcessGroup, folder: Path, _: bool) -> tuple[dict[str, Tensor], Any]:
    job = Job(rank, group)
    job.train(2)  # another past, which loading must leave no trace of
    job.losses.clear()
    loaded = job.load(folder)
    assert (loaded.step, loaded.num_workers, loaded.elastic) == (7, dist.get_world_size(group), False)
    job.train(7)
    return job.everything(), job.losses


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("num_workers", [1, 3])
def test_resumed_is_as_if_never_stopped(cluster: Cluster, tmp_path: Path, num_workers: int, asynchronous: bool) -> None:
    straight = cluster.run(num_workers, _straight, tmp_path, asynchronous)
    resumed = cluster.run(num_workers, _resumed, tmp_path, asynchronous)
    for (state, losses), (other, others) in zip(straight, resumed, strict=True):
        assert losses == others
        assert same(state, other)
    if num_workers > 1:
        assert not torch.equal(straight[0][0]["1.running_mean"], straight[1][0]["1.running_mean"])
        assert not torch.equal(straight[0][0]["0.weight.exp_avg"], straight[1][0]["0.weight.exp_avg"])
    assert listing(tmp_path) == ["step-0000000007"]
    names = [f"worker-{worker:05}.safetensors" for worker in range(num_workers)]
    assert listing(tmp_path / "step-0000000007") == ["manifest.json", "weights.safetensors", *names]


def _with_another_grid(rank: int, group: dist.ProcessGroup, folder: Path) -> list[str]:
    job = Job(rank, group, codec=Levels(4, grid="log"))
    job.save(folder, 1)
    other = Job(rank, group, codec=Levels(4, grid="float"))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        other.load(folder)
    assert repr(other.optimizer.param_groups[0]["codec"]) == repr(Levels(4, grid="float"))
    other.train(1)
    return [str(warning.message) for warning in said if warning.category is CheckpointWarning]


def test_another_codec_than_the_saved_one_is_said(cluster: Cluster, tmp_path: Path) -> None:
    for said in cluster.run(2, _with_another_grid, tmp_path):
        assert len(said) == 1
        assert "the saved run sent Levels(bits=4, scale='l1', grid='log')" in said[0]
        assert "this optimizer sends Levels(bits=4, scale='l1', grid='float')" in said[0]
    assert cluster.run(1, _with_another_grid, tmp_path / "alone") == [[]], "one worker is plain Lion with any codec"


# ---- machines without a shared disk: workers 0, 1 and workers 2, 3 have folders of their own ------------------------


def _machine(folder: Path, rank: int) -> Path:
    return folder / ("a" if rank < 2 else "b")


def _apart(rank: int, group: dist.ProcessGroup, folder: Path, asynchronous: bool) -> dict[str, Tensor]:
    job = Job(rank, group)
    for step in (3, 6, 9):
        job.train(3)
        saving = job.save(_machine(folder, rank), step, keep=1, asynchronous=asynchronous)
    saving.wait()
    return job.everything()


def _load_apart(rank: int, group: dist.ProcessGroup, where: Callable[[Path, int], Path], folder: Path) -> Any:
    job = Job(rank, group)
    before = job.everything()
    try:
        job.load(where(folder, rank))
    except CheckpointError:
        assert same(job.everything(), before), "all or nothing"
        raise
    return job.everything()


def _of_another_run(folder: Path, rank: int) -> Path:
    return folder / ("first" if rank < 2 else "second") / ("a" if rank < 2 else "b")


def test_machines_with_the_same_step_of_different_runs_load_nothing(cluster: Cluster, tmp_path: Path) -> None:
    for run in ("first", "second"):
        cluster.run(4, _apart, tmp_path / run, False)
    for failure in cluster.attempt(4, _load_apart, _of_another_run, tmp_path):
        assert isinstance(failure, Failure)
        assert failure.kind == "CheckpointError"
        assert "is not the same checkpoint on all workers" in failure.text


def _merged(folder: Path, rank: int) -> Path:
    return folder / "merged"


@pytest.mark.parametrize("asynchronous", [False, True])
def test_machines_without_a_shared_disk(cluster: Cluster, tmp_path: Path, asynchronous: bool) -> None:
    saved = cluster.run(4, _apart, tmp_path, asynchronous)
    assert listing(tmp_path / "a") == ["step-0000000006", "step-0000000009"], "never fewer than two"
    inside = ["manifest-00002.json", "weights.safetensors", "worker-00002.safetensors", "worker-00003.safetensors"]
    assert listing(tmp_path / "b" / "step-0000000009") == inside
    loaded = cluster.run(4, _load_apart, _machine, tmp_path)
    assert all(same(a, b) for a, b in zip(saved, loaded, strict=True))
    for failure in cluster.attempt(2, _load_apart, _machine, tmp_path):
        assert isinstance(failure, Failure)
        assert "worker-00002.safetensors" in failure.text, "what is missing"
        assert "copy all machines' folders" in failure.text, "what to do"
    for machine in ("a", "b"):
        merged = tmp_path / "merged" / "step-0000000009"
        merged.mkdir(parents=True, exist_ok=True)
        for file in (tmp_path / machine / "step-0000000009").iterdir():
            (merged / file.name).write_bytes(file.read_bytes())
    loaded = cluster.run(4, _load_apart, _merged, tmp_path)
    assert all(same(a, b) for a, b in zip(saved, loaded, strict=True))
    cluster.run(2, _load_apart, _merged, tmp_path)


# ---- what goes wrong on one worker is told on all ------------------------------------------------------------------


def _full_disk(rank: int, group: dist.ProcessGroup, folder: Path, asynchronous: bool) -> list[str]:
    job = Job(rank, group)
    job.save(folder, 1)
    told = []
    with pytest.MonkeyPatch.context() as patch:
        if rank == 1:
            patch.setattr(disk, "write", _no_space)
        try:
            saving = job.save(folder, 2, asynchronous=asynchronous)
            while not saving.done:
                time.sleep(0.01)
        except CheckpointError as problem:
            told.append(str(problem))
    assert job.load(folder).step == 1
    if asynchronous:
        assert not told, "the call returned before anything was written"
        with pytest.warns(CheckpointWarning) as warned:
            job.save(folder, 3)
        told += [str(each.message) for each in warned]
    else:
        job.save(folder, 3)
    assert listing(folder) == ["step-0000000001", "step-0000000003"], "nothing is left of it"
    return told


def _no_space(file: io.FileIO, data: memoryview) -> None:
    if len(data) > 1000:
        raise OSError(28, "No space left on device")
    file.write(data)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_full_disk_is_an_error_on_all_workers(cluster: Cluster, tmp_path: Path, asynchronous: bool) -> None:
    for rank, told in enumerate(cluster.run(3, _full_disk, tmp_path, asynchronous)):
        assert len(told) == 1, "told once, at once or at the next save"
        assert "worker 1" in told[0] or (asynchronous and rank == 1)
        assert "No space left" in told[0]
        assert ".step-0000000002" in told[0]


def _disagree(rank: int, group: dist.ProcessGroup, folder: Path) -> None:
    job = Job(rank, group)
    job.save(folder, 5 if rank == 2 else 4)


def _strange_extra(rank: int, group: dist.ProcessGroup, folder: Path) -> None:
    job = Job(rank, group)
    job.order = {1, 2} if rank == 1 else []  # type: ignore[assignment]
    job.save(folder, 4)


@pytest.mark.parametrize(
    ("save", "kind", "says"),
    [(_disagree, "AgreementError", "step is 5 on worker 2"), (_strange_extra, "ConfigError", "worker 1: extra cannot")],
)
def test_what_cannot_be_saved_is_refused_everywhere(
    cluster: Cluster, tmp_path: Path, save: Callable[..., None], kind: str, says: str
) -> None:
    for failure in cluster.attempt(3, save, tmp_path):
        assert isinstance(failure, Failure)
        assert failure.kind == kind
        assert says in failure.text
    assert not list(tmp_path.iterdir()), "nothing was written"


def _damaged_on_one(rank: int, group: dist.ProcessGroup, folder: Path) -> tuple[int, str]:
    job = Job(rank, group)
    job.save(folder, 1)
    job.train(1)
    job.save(folder, 2)
    if rank == 0:
        (folder / "step-0000000002" / "worker-00001.safetensors").write_bytes(b"")
    dist.barrier(group)
    with pytest.warns(match="passed over") as told:
        loaded = job.load(folder)
    return loaded.step, str(told[0].message)


def test_a_file_that_one_worker_cannot_read_is_passed_over_by_all(cluster: Cluster, tmp_path: Path) -> None:
    for step, told in cluster.run(3, _damaged_on_one, tmp_path):
        assert step == 1
        assert "worker 1: " in told
        assert "worker-00001.safetensors" in told
