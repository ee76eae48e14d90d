"""Checkpoints of one process: contents, retention, refused arguments and files."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from typer.testing import CliRunner

import lioncub
from lioncub import DistributedLion, Lion, checkpoint
from lioncub.checkpoint import disk, saving, strict_json, values
from lioncub.checkpoint.disk import Entry
from lioncub.checkpoint.tensors import DTYPES, Blob, read_tensors, write_tensors
from lioncub.errors import (
    CheckpointError,
    CheckpointTimeoutError,
    CheckpointWarning,
    ConfigError,
    LionCubError,
    NoCheckpointError,
)
from lioncub.momentum.memory import betas_now, lr_now
from lioncub.tools.cli import app
from tests.support.checkpointing import Job, listing, same


def steps(*numbers: int) -> list[str]:
    return [f"step-{number:010}" for number in numbers]


# ---- save and load --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [DistributedLion, Lion])
def test_training_goes_on_as_if_nothing_had_happened(tmp_path: Path, make: Any) -> None:
    job = Job(make=make)
    job.train(3)
    job.save(tmp_path, 3)
    job.train(4)
    other = Job(rank=9, make=make)
    other.train(1)
    loaded = other.load(tmp_path)
    assert loaded == checkpoint.Loaded(3, loaded.extra, (loaded.extra,), 1, False)
    other.train(4)
    assert same(job.everything(), other.everything())
    assert checkpoint.latest(tmp_path) == 3


@pytest.mark.parametrize("make", [DistributedLion, Lion])
def test_the_memory_of_momenta_is_that_of_the_saved_run(tmp_path: Path, make: Any) -> None:
    job, other = Job(make=make, memory=3.0, warmup=7), Job(make=make, memory="constant")
    job.train(5)
    job.save(tmp_path, 5)
    job.train(4)
    other.load(tmp_path)
    group = other.optimizer.param_groups[0]
    assert (group["memory"], group["warmup"], group["since"], group["step"]) == (3.0, 7, 0, 5)
    assert betas_now(group)[1] == 5 / 8
    assert lr_now(group) == pytest.approx(group["lr"] * 6 / 7)
    other.train(4)
    assert same(job.everything(), other.everything())


def test_from_plain_lion_to_distributed_and_back(tmp_path: Path) -> None:
    plain, distributed, again = Job(make=Lion), Job(momentum_sync=None), Job(make=Lion)
    plain.train(3)
    plain.save(tmp_path / "plain", 3)
    distributed.load(tmp_path / "plain")
    distributed.train(3)
    distributed.save(tmp_path / "distributed", 6)
    again.load(tmp_path / "distributed")
    again.train(2)
    plain.load(tmp_path / "plain")
    plain.train(5)
    assert same(again.everything(), plain.everything())
    assert "codec" not in again.optimizer.param_groups[0]


def test_from_another_lion(tmp_path: Path) -> None:
    """What lion-pytorch saved is loaded by load_state_dict, then saved here."""
    lion_pytorch = pytest.importorskip("lion_pytorch")
    theirs = Job(make=lion_pytorch.Lion)
    theirs.train(3)
    torch.save(theirs.optimizer.state_dict(), tmp_path / "state.pt")
    job = Job()
    job.model.load_state_dict(theirs.model.state_dict())
    job.optimizer.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    job.save(tmp_path, 3)
    other = Job()
    other.load(tmp_path)
    for p, q in zip(theirs.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(theirs.optimizer.state[p]["exp_avg"], other.optimizer.state[q]["exp_avg"])


@pytest.mark.parametrize(("saved", "wanted"), [("bfloat16", "float32"), ("float32", "bfloat16")])
def test_momenta_take_the_precision_of_the_optimizer_and_it_is_said(tmp_path: Path, saved: str, wanted: str) -> None:
    job = Job(momentum_dtype=getattr(torch, saved))
    job.train(2)
    job.save(tmp_path, 2)
    other = Job(momentum_dtype=getattr(torch, wanted))
    with pytest.warns(CheckpointWarning, match=f"saved in torch.{saved} and are converted to torch.{wanted}"):
        other.load(tmp_path)
    for p, q in zip(job.model.parameters(), other.model.parameters(), strict=True):
        mine, theirs = job.optimizer.state[p]["exp_avg"], other.optimizer.state[q]["exp_avg"]
        assert theirs.dtype == getattr(torch, wanted)
        assert torch.equal(theirs, mine.to(theirs.dtype))


def test_groups_frozen_and_tied_parameters_and_memory_formats(tmp_path: Path) -> None:
    def make() -> tuple[Any, DistributedLion]:
        torch.manual_seed(0)
        model: Any = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1), nn.Linear(4, 4), nn.Linear(4, 4))
        model[0].weight.data = model[0].weight.data.to(memory_format=torch.channels_last)
        model[3].weight = model[2].weight
        model[0].weight.requires_grad_(False)
        model[1].weight.data = model[1].weight.data.to(torch.bfloat16)
        model.register_buffer("cache", torch.randn(3), persistent=False)
        groups = [
            {"params": [model[0].weight, model[1].weight], "lr": torch.tensor(0.5)},
            {"params": [model[2].weight], "weight_decay": 0.3, "codec": lioncub.Mean(), "my own": [1, {"x": None}]},
        ]
        return model, DistributedLion(groups, lr=0.1)

    model, optimizer = make()
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.data.normal_()
            optimizer.state[p]["exp_avg"].normal_()
    optimizer.param_groups[0]["lr"].fill_(0.25)
    optimizer.param_groups[1]["weight_decay"] = 0.7
    checkpoint.save(tmp_path, model, optimizer, 0)
    other, loaded = make()
    cache = other.get_buffer("cache").clone()
    checkpoint.load(tmp_path, other, loaded)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    assert torch.equal(other.get_buffer("cache"), cache), "torch does not save it either"
    assert other[0].weight.is_contiguous(memory_format=torch.channels_last)
    for mine, theirs in zip(optimizer.param_groups, loaded.param_groups, strict=True):
        assert {k: v for k, v in mine.items() if k != "params"} == {k: v for k, v in theirs.items() if k != "params"}
        for p, q in zip(mine["params"], theirs["params"], strict=True):
            assert torch.equal(optimizer.state[p]["exp_avg"], loaded.state[q]["exp_avg"])
    assert isinstance(loaded.param_groups[0]["lr"], Tensor)


# ---- the files ------------------------------------------------------------------------------------------------------


def test_what_is_in_a_folder(tmp_path: Path) -> None:
    job = Job()
    job.train(2)
    saving = job.save(tmp_path, 1200)
    assert saving.done
    saving.wait()
    assert saving.folder == tmp_path / "step-0000001200"
    assert listing(saving.folder) == ["manifest.json", "weights.safetensors", "worker-00000.safetensors"]
    weights = load_file(saving.folder / "weights.safetensors")
    assert all(torch.equal(weights[name], param) for name, param in job.model.named_parameters())
    state = load_file(saving.folder / "worker-00000.safetensors")
    assert torch.equal(state["buffer/1.running_var"], job.model.get_buffer("1.running_var"))
    manifest = json.loads((saving.folder / "manifest.json").read_text())
    assert (manifest["step"], manifest["optimizer_step"], manifest["num_workers"]) == (1200, 2, 1)
    assert manifest["extras"] == [{"order": job.order}]
    assert (
        manifest["files"]["weights.safetensors"]["num_bytes"] == os.stat(saving.folder / "weights.safetensors").st_size
    )


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_tensors_of_every_type_and_shape(tmp_path: Path, dtype: torch.dtype) -> None:
    """Both ways against the safetensors package."""
    tensors = {
        f"{shape}": (torch.randn(shape) * 3).to(dtype) for shape in ((), (0,), (1,), (3, 5), (2, 0, 2), (64, 65))
    }
    tensors["transposed"] = tensors["(64, 65)"].t()
    blobs = [Blob.of(name, tensor, copy=False) for name, tensor in tensors.items()]
    entry = write_tensors(tmp_path / "a", blobs, {"file": "a"})
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, tmp_path / "b", {"file": "b"})
    data = (tmp_path / "b").read_bytes()
    theirs = Entry(len(data), hashlib.sha256(data).hexdigest())
    for found in (
        load_file(tmp_path / "a"),
        read_tensors(tmp_path / "a", entry, {"file": "a"}),
        read_tensors(tmp_path / "b", theirs, {"file": "b"}),
    ):
        assert found.keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert found[name].shape == tensor.shape
            assert found[name].dtype == dtype
            assert found[name].contiguous().reshape(-1).view(torch.uint8).equal(tensor.reshape(-1).view(torch.uint8))


def test_strict_json() -> None:
    value = {"a": [1, 2.5, -0.0, 1e-300, None, True, "ü\ud800"], "b": {}}
    assert strict_json.parse(strict_json.dump(value)) == value
    for bad in ({1: 1, "1": 2}, float("nan"), {"x": {1, 2}}, b"x", object()):
        with pytest.raises(ValueError, match=r"."):
            strict_json.dump(bad)
    for text in ('{"a": 1, "a": 2}', "NaN", "-Infinity", "[" * 10_000, "1" * 10_000, "{", b"\xff", ""):
        with pytest.raises(ValueError, match=r"."):
            strict_json.parse(text)


# ---- which are kept -------------------------------------------------------------------------------------------------


def test_the_last_ones_are_kept(tmp_path: Path) -> None:
    job = Job()
    for step in (1, 20, 300, 4000):
        job.save(tmp_path, step, keep=3)
    assert listing(tmp_path) == steps(20, 300, 4000)
    job.save(tmp_path, 50_000, keep=1)
    assert listing(tmp_path) == steps(50_000)


def test_a_run_that_was_rolled_back_loses_nothing(tmp_path: Path) -> None:
    """Checkpoints of a later step stay, and the one just saved is never the one to go."""
    job = Job()
    for step in (10, 20, 30):
        job.save(tmp_path, step, keep=3)
    job.load(tmp_path, step=10)
    job.save(tmp_path, 11, keep=1)
    assert listing(tmp_path) == steps(11, 20, 30)
    assert checkpoint.latest(tmp_path) == 30
    assert job.load(tmp_path, step=11).step == 11


def test_saving_a_step_again_replaces_it_and_leftovers_go(tmp_path: Path) -> None:
    job = Job()
    job.save(tmp_path, 1)
    (tmp_path / ".step-0000000001.0123abcd").mkdir()
    (tmp_path / ".step-0000000001.0123abcd" / "worker-00000.here").touch()
    (tmp_path / "mine.txt").touch()
    (tmp_path / ".hidden").touch()
    job.train(1)
    job.save(tmp_path, 1)
    assert listing(tmp_path) == [".hidden", "mine.txt", *steps(1)], "other people's files stay"
    other = Job()
    other.load(tmp_path)
    assert same(other.learned(), job.learned())


# ---- in the background ----------------------------------------------------------------------------------------------


class Gate:
    """Holds the disk's writes back until it opens."""

    def __init__(self, patch: pytest.MonkeyPatch, problem: Exception | None = None) -> None:
        self.opened, self.problem, self._write = threading.Event(), problem, disk.write
        patch.setattr(disk, "write", self.write)

    def write(self, file: Any, data: memoryview) -> None:
        assert self.opened.wait(60)
        if self.problem is not None and len(data) > 1000:
            raise self.problem
        self._write(file, data)


def test_saving_in_the_background_waits_for_a_copy_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job()
    job.train(2)
    expected = job.everything()
    gate = Gate(monkeypatch)
    saving = job.save(tmp_path, 2, asynchronous=True)
    assert not saving.done, "the call returned although nothing can be written"
    assert checkpoint.latest(tmp_path) is None
    job.train(3)  # what was copied does not change any more
    with pytest.raises(CheckpointTimeoutError, match="still being written"):
        saving.wait(timeout=0.01)
    gate.opened.set()
    saving.wait()
    assert listing(tmp_path) == steps(2)
    job.load(tmp_path)
    assert same(job.everything(), expected)


SLOWLY = """
import sys, time
from pathlib import Path
from lioncub.checkpoint import disk
from tests.support.checkpointing import Job

write = disk.write
disk.write = lambda file, data: (time.sleep(0.05), write(file, data))
Job().save(Path(sys.argv[1]), 1, asynchronous=True)
"""


def test_the_end_of_the_program_waits_for_the_disk(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", SLOWLY, str(tmp_path)], check=True, timeout=120)
    assert listing(tmp_path) == steps(1)
    Job().load(tmp_path)


def test_a_second_save_waits_for_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job()
    gate = Gate(monkeypatch)
    first = job.save(tmp_path, 1, asynchronous=True)
    threading.Timer(0.2, gate.opened.set).start()
    second = job.save(tmp_path, 2, asynchronous=True)
    assert first.done
    second.wait()
    assert listing(tmp_path) == steps(1, 2)


def test_what_went_wrong_in_the_background_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job()
    job.save(tmp_path, 1)
    with monkeypatch.context() as patch:
        gate = Gate(patch, OSError(28, "No space left on device"))
        gate.opened.set()
        saving = job.save(tmp_path, 2, asynchronous=True)
        with pytest.raises(CheckpointError, match=r"step-0000000002.*No space left"):
            saving.wait()
        saving = job.save(tmp_path, 3, asynchronous=True)
        while not saving.done:
            threading.Event().wait(0.01)
        assert listing(tmp_path) == steps(1), "what failed has gone"
    with pytest.warns(CheckpointWarning, match=r"earlier checkpoint was not saved: .*step-0000000003.*No space left"):
        job.save(tmp_path, 4)
    assert listing(tmp_path) == steps(1, 4), "and this one is saved"
    job.save(tmp_path, 5)


def test_training_never_waits_for_the_disk_to_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[str] = set()

    def noting(real: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*given: Any) -> Any:
            threads.add(threading.current_thread().name)
            return real(*given)

        return noted

    for name in ("sync", "sync_folder", "rename", "unlink"):
        monkeypatch.setattr(disk, name, noting(getattr(disk, name)))
    Job().save(tmp_path / "new" / "run", 1, asynchronous=True).wait()
    assert threads == {"lioncub saves step-0000000001"}


# ---- what saves leave behind, and what they must not touch -----------------------------------------------------------


def test_what_failed_saves_left_goes_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job()
    job.save(tmp_path, 1)
    left = tmp_path / ".step-0000000002.00ff"
    left.mkdir()
    (left / "worker-00000.safetensors").write_bytes(bytes(1000))
    write = disk.write

    def checked(file: Any, data: memoryview) -> None:
        assert not left.exists()
        write(file, data)

    monkeypatch.setattr(disk, "write", checked)
    job.save(tmp_path, 3)
    assert listing(tmp_path) == steps(1, 3)


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    job, elsewhere = Job(), tmp_path / "elsewhere"
    job.save(tmp_path / "run", 1)
    (tmp_path / "run" / steps(1)[0]).rename(elsewhere)
    (elsewhere / "important.txt").write_text("mine")
    (tmp_path / "run" / steps(1)[0]).symlink_to(elsewhere)
    assert job.load(tmp_path / "run").step == 1
    for step in (2, 3, 4):
        job.save(tmp_path / "run", step)
    assert listing(tmp_path / "run") == steps(3, 4)
    assert (elsewhere / "important.txt").read_text() == "mine"
    assert (elsewhere / "manifest.json").exists()


def test_what_cannot_be_removed_does_not_fail_the_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job()
    for step in (1, 2):
        job.save(tmp_path, step)

    def refuse(path: Path) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(disk, "remove_folder", refuse)
    with pytest.warns(CheckpointWarning, match=r"step-0000000001.*cannot be removed: Operation not permitted"):
        job.save(tmp_path, 3)
    assert job.load(tmp_path).step == 3


# ---- extra ----------------------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.tuples(st.integers()), inner)
        | st.dictionaries(st.integers(), st.integers()).map(Counter)
    ),
)


@given(VALUES)
def test_extra_comes_back_as_it_was(value: Any) -> None:
    text = strict_json.dump(values.to_json(value))
    back = values.from_json(strict_json.parse(text))
    assert back == value
    assert repr(back) == repr(value), "types and signs of zeros included"


@pytest.mark.parametrize(
    "text", ['{"!": ["set", []]}', '{"!": 1}', '{"!": ["tuple", []], "a": 1}', '{"!": ["dict", 5]}']
)
def test_values_that_nobody_wrote_are_refused(text: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        values.from_json(strict_json.parse(text))


def test_schedulers_go_on_from_extra(tmp_path: Path) -> None:
    job = Job()
    several = torch.optim.lr_scheduler.MultiStepLR(job.optimizer, [2, 4])
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(job.optimizer)
    checkpoint.save(tmp_path, job.model, job.optimizer, 1, [several.state_dict(), plateau.state_dict()])
    assert checkpoint.load(tmp_path, job.model, job.optimizer).extra == [several.state_dict(), plateau.state_dict()]


def test_an_extra_that_could_not_be_read_again_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job()
    job.save(tmp_path, 1)
    monkeypatch.setattr(saving, "MAX_EXTRA_BYTES", 1000)
    with pytest.raises(ConfigError, match="extra is 2,002 bytes of JSON over all workers"):
        checkpoint.save(tmp_path, job.model, job.optimizer, 2, "x" * 2000, keep=1)
    assert listing(tmp_path) == steps(1)


# ---- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"extra": {1, 2}}, "extra cannot be saved: set is not None, a bool, number"),
        ({"extra": [torch.zeros(1)]}, "extra cannot be saved: Tensor is not"),
        ({"step": -1}, "step=-1"),
        ({"step": 1.0}, "step=1.0"),
        ({"keep": 0}, "keep=0"),
    ],
)
def test_bad_requests_are_refused_before_anything_is_written(tmp_path: Path, options: Any, says: str) -> None:
    job = Job()
    with pytest.raises(ConfigError, match=says):
        checkpoint.save(tmp_path / "run", job.model, job.optimizer, **{"step": 1, **options})
    assert not (tmp_path / "run").exists()


def test_other_models_and_optimizers_are_refused(tmp_path: Path) -> None:
    job = Job()
    with pytest.raises(ConfigError, match="AdamW: lioncub's checkpoints hold"):
        checkpoint.save(tmp_path, job.model, torch.optim.AdamW(job.model.parameters()), 1)
    with pytest.raises(ConfigError, match="not in the model"):
        checkpoint.save(tmp_path, nn.Linear(2, 2), job.optimizer, 1)
    job.optimizer.param_groups[0]["note"] = object()
    with pytest.raises(ConfigError, match="parameter group"):
        job.save(tmp_path, 1)

    class Counting(nn.Linear):
        def get_extra_state(self) -> int:
            return 3

    model = Counting(2, 2)
    with pytest.raises(ConfigError, match="'_extra_state' is not a tensor: save it as part of extra"):
        checkpoint.save(tmp_path, model, Lion(model.parameters()), 1)
    assert not listing(tmp_path)


class Small(nn.Module):
    """Every way in which a model can differ from another."""

    def __init__(self, width: int = 2, name: str = "weight", dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.register_parameter(name, nn.Parameter(torch.ones(width, dtype=dtype)))
        self.register_buffer("mean", torch.ones(3))


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (Small(3), r"weights.safetensors is of another model: weight has shape \(2,\), .* there and \(3,\)"),
        (Small(dtype=torch.bfloat16), "weights.safetensors is of another model.*bfloat16"),
        (Small(name="bias"), "manifest.json has other parameter groups"),
    ],
)
def test_a_checkpoint_of_another_model_changes_nothing(tmp_path: Path, model: nn.Module, says: str) -> None:
    saved = Small()
    checkpoint.save(tmp_path, saved, Lion(saved.parameters()), 1)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(CheckpointError, match=says):
        checkpoint.load(tmp_path, model, Lion(model.parameters(), lr=0.7))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_no_checkpoint_is_not_a_damaged_one(tmp_path: Path) -> None:
    job = Job()
    for empty in (tmp_path, tmp_path / "nothing"):
        assert checkpoint.latest(empty) is None
        with pytest.raises(NoCheckpointError, match="holds no checkpoint"):
            job.load(empty)
    job.save(tmp_path, 1)
    with pytest.raises(NoCheckpointError, match="of step 2"):
        job.load(tmp_path, step=2)
    (tmp_path / "step-0000000001" / "weights.safetensors").unlink()
    assert checkpoint.latest(tmp_path) is None
    with pytest.raises(CheckpointError, match=r"weights\.safetensors") as told:
        job.load(tmp_path)
    assert not isinstance(told.value, NoCheckpointError), "a run must not start from the beginning by mistake"


@pytest.mark.parametrize("note", ["exp_avg", "exp_avg_sq"])
def test_a_note_that_takes_a_momentums_place_is_refused(tmp_path: Path, note: str) -> None:
    job = Job()
    job.save(tmp_path, 1)
    path = tmp_path / steps(1)[0] / "manifest.json"
    content = json.loads(path.read_text())
    content["notes"] = {content["groups"][0]["parameters"][0]: {note: 5}}
    del content["sha256"]
    seal = hashlib.sha256(strict_json.dump(content).encode()).hexdigest()
    path.write_text(strict_json.dump({**content, "sha256": seal}, indent=1) + "\n")
    with pytest.raises(CheckpointError, match="notes that take a momentum's place cannot be"):
        job.load(tmp_path)


def test_a_damaged_checkpoint_is_passed_over_and_named(tmp_path: Path) -> None:
    job = Job()
    for step in (1, 2, 3):
        job.train(1)
        job.save(tmp_path, step, keep=3)
        if step == 1:
            expected = job.everything()
    for step, name in ((2, "manifest.json"), (3, "worker-00000.safetensors")):
        path = tmp_path / f"step-{step:010}" / name
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(CheckpointWarning) as told:
        assert job.load(tmp_path).step == 1
    assert same(job.everything(), expected)
    messages = [str(warning.message) for warning in told]
    assert "step-0000000003/worker-00000.safetensors" in messages[0]
    assert "step-0000000002/manifest.json" in messages[1]
    before = job.everything()
    with pytest.raises(CheckpointError, match="step-0000000002"):
        job.load(tmp_path, step=2)
    assert same(job.everything(), before)


def test_a_manifest_with_another_setting_is_refused(tmp_path: Path) -> None:
    """Valid in every field: only the manifest's own checksum tells."""
    job = Job()
    job.save(tmp_path, 1)
    path = tmp_path / "step-0000000001" / "manifest.json"
    text = path.read_text(encoding="utf-8")
    assert text.count('"lr": 0.01') == 1
    path.write_text(text.replace('"lr": 0.01', '"lr": 0.02'), encoding="utf-8")
    with pytest.raises(CheckpointError, match="a checksum that does not match its text"):
        job.load(tmp_path)


def test_a_folder_that_was_renamed_is_noticed(tmp_path: Path) -> None:
    job = Job()
    job.save(tmp_path, 1)
    (tmp_path / "step-0000000001").rename(tmp_path / "step-0000000009")
    with pytest.raises(CheckpointError, match="is of step 1, in the folder of step 9"):
        job.load(tmp_path)


def test_a_generator_that_was_replaced_is_refused(tmp_path: Path) -> None:
    job = Job()
    of_numpy: Any = np.random
    before = of_numpy.get_bit_generator()
    of_numpy.set_bit_generator(of_numpy.PCG64(1))
    try:
        with pytest.raises(ConfigError, match="numpy's global generator is a PCG64"):
            job.save(tmp_path, 1)
    finally:
        of_numpy.set_bit_generator(before)


def test_gaussian_numbers_that_were_drawn_in_pairs_are_kept(tmp_path: Path) -> None:
    """Both Python and numpy draw two at a time and keep the second."""
    job = Job()
    random.gauss(0, 1)
    np.random.randn()
    job.save(tmp_path, 1)
    expected = [random.gauss(0, 1), np.random.randn(), random.gauss(0, 1), np.random.randn()]
    job.load(tmp_path)
    assert [random.gauss(0, 1), np.random.randn(), random.gauss(0, 1), np.random.randn()] == expected


# ---- the command line -----------------------------------------------------------------------------------------------


def test_verify_and_show(tmp_path: Path) -> None:
    job, runner = Job(), CliRunner()
    job.train(2)
    for step in (1, 2000):
        job.save(tmp_path, step)
    result = runner.invoke(app, ["checkpoint", "verify", str(tmp_path)])
    assert result.exit_code == 0
    assert result.output.count("sound") == 2
    result = runner.invoke(app, ["checkpoint", "show", str(tmp_path)])
    assert result.exit_code == 0
    assert "2,000" in result.output
    result = runner.invoke(app, ["checkpoint", "show", str(tmp_path / "step-0000002000")])
    assert "weights.safetensors" in result.output
    weights = tmp_path / "step-0000002000" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    (tmp_path / "step-0000000001" / "manifest.json").write_text("{}")
    result = runner.invoke(app, ["checkpoint", "verify", str(tmp_path)])
    assert result.exit_code == 1
    assert "step-0000002000/weights.safetensors is damaged" in result.output
    assert "step-0000000001/manifest.json is damaged" in result.output
    result = runner.invoke(app, ["checkpoint", "show", str(tmp_path)])
    assert "damaged" in result.output
    for folder, error in ((tmp_path / "nothing", ConfigError), (weights.parent.parent.parent, LionCubError)):
        result = runner.invoke(app, ["checkpoint", "verify", str(folder)])
        assert isinstance(result.exception, error)
