"""Weights that a job begins with: trained once, kept, and never taken where they are damaged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lioncub.tools.data.errors import DataError, DataMissingError
from lioncub.tools.jobs import JOBS, load_job
from lioncub.tools.jobs.pretraining import Pretraining, Weights, file_name, fingerprint, pretrained
from lioncub.tools.jobs.text import TextJob
from tests.support.text_jobs import text_job

HOW = Pretraining(job="gpt-230k", text="made", steps=30, examples=128, warmup=0.2)


class Loader:
    """Loads the job that is trained on, and counts how often."""

    count = 0

    def __call__(self) -> TextJob:
        self.count += 1
        return text_job("gpt-230k")


def made(cache: Path, how: Pretraining = HOW, load: Callable[[], TextJob] | None = None) -> Weights:
    return pretrained(how, JOBS["gpt-230k"].build, load or Loader(), cache)


def same(one: Weights, other: Weights) -> bool:
    return [*one] == [*other] and all(torch.equal(one[name], other[name]) for name in one)


def test_what_was_trained_is_kept_and_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load = Loader()
    first = made(tmp_path, load=load)
    said = capsys.readouterr().err
    assert "Training gpt-230k on made, 30 steps of 128 tokens" in said
    again = made(tmp_path, load=load)
    assert load.count == 1
    assert capsys.readouterr().err == ""
    assert same(first, again)
    (path,) = tmp_path.iterdir()
    assert path.name in said


def test_a_pretrained_model_knows_its_text_already(tmp_path: Path) -> None:
    job = text_job("gpt-230k")
    held_out = job.validation(512)
    pretrained_job = replace(job, weights=made(tmp_path))
    with torch.no_grad():
        fresh, known = (each.loss(each.model(0), *held_out).item() for each in (job, pretrained_job))
    assert known < 0.5 * fresh
    one, other = pretrained_job.model(0), pretrained_job.model(1)
    assert same(dict(one.named_parameters()), dict(other.named_parameters()))
    with torch.no_grad():
        next(one.parameters()).zero_()  # what is trained further is a copy
    assert same(dict(pretrained_job.model(2).named_parameters()), dict(other.named_parameters()))


def test_weights_do_not_depend_on_threads_or_random_numbers_of_others(tmp_path: Path) -> None:
    files = []
    threads = torch.get_num_threads()
    try:
        for number in (1, 2):
            torch.set_num_threads(number)
            torch.manual_seed(number)
            made(tmp_path / str(number))
            assert torch.get_num_threads() == number
            files.append(next((tmp_path / str(number)).iterdir()))
    finally:
        torch.set_num_threads(threads)
    assert files[0].name == files[1].name
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-4],
        lambda data: data + bytes(4),
        lambda data: data[:5000] + bytes([data[5000] ^ 1]) + data[5001:],
        lambda data: bytes([data[0] ^ 1]) + data[1:],
    ],
    ids=["empty", "too short", "too long", "a bit of a weight", "a bit of the checksum"],
)
def test_a_damaged_file_is_made_anew(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    how = replace(HOW, steps=3)
    first = made(tmp_path, how)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    load = Loader()
    assert same(made(tmp_path, how, load), first)
    assert load.count == 1
    assert path.read_bytes() == whole


def test_another_recipe_or_model_has_another_file(tmp_path: Path) -> None:
    names = {
        file_name(how, JOBS[model].build())
        for how in (HOW, replace(HOW, steps=31), replace(HOW, lr=2e-2), replace(HOW, seed=1))
        for model in ("gpt-230k", "gpt-1m")
    }
    assert len(names) == 8
    one, other = (made(tmp_path, replace(HOW, steps=3, seed=seed)) for seed in (0, 1))
    assert fingerprint(one) != fingerprint(other)
    assert len([*tmp_path.iterdir()]) == 2


def test_another_process_may_train_the_same_meanwhile(tmp_path: Path) -> None:
    how = replace(HOW, steps=3)
    there: list[bytes] = []

    def overtaken() -> TextJob:
        """Both have found nothing; the other one is ready first."""
        made(tmp_path, how)
        there.extend(path.read_bytes() for path in tmp_path.iterdir())
        return text_job("gpt-230k")

    first = made(tmp_path, how, overtaken)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == there
    load = Loader()
    assert same(made(tmp_path, how, load), first)
    assert load.count == 0


def test_a_place_that_cannot_be_written_is_an_error_before_the_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    load = Loader()
    with pytest.raises(DataError, match=r"cannot be kept in .*cache: .*XDG_CACHE_HOME"):
        made(tmp_path / "file" / "cache", load=load)
    assert load.count == 0


def test_the_job_begins_with_them_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataMissingError, match="`lioncub data enwik8`"):
        load_job("gpt-230k-finetune", cache=tmp_path)
    recipe = JOBS["gpt-230k-finetune"]
    how = Pretraining(job="gpt-230k", text="stdlib", steps=3, examples=128, warmup=0.4)
    monkeypatch.setitem(JOBS, "gpt-230k-finetune", replace(recipe, pretraining=how))
    job = load_job("gpt-230k-finetune", cache=tmp_path)
    assert job.weights is not None
    assert same(dict(job.model(7).named_parameters()), job.weights)
    plain = load_job("gpt-230k", text="stdlib")
    assert job.data == "stdlib"
    assert job.learned_from == f"stdlib ({plain.data_version}; after stdlib, weights {fingerprint(job.weights)})"
    assert [*plain.model(0).state_dict()] == [*job.weights]
