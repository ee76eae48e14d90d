"""``lioncub.resume``: signals end all workers at the same step, and the next run continues bit for bit."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import lioncub
from lioncub import checkpoint
from lioncub.errors import ConfigError
from tests.support.paths import TRAIN
from tests.support.torchrun import LAUNCHER, children, started, torchrun, wait_for
from tests.support.train_script import Config

NUM_WORKERS = 2


def digests(folder: Path) -> list[str]:
    return [(folder / f"digest-{rank}").read_text() for rank in range(NUM_WORKERS)]


def run_to_the_end(folder: Path) -> list[str]:
    done = torchrun(TRAIN, Config(folder=str(folder), steps=120, every=50).to_json(), num_workers=NUM_WORKERS)
    assert done.returncode == 0, done.stderr
    return digests(folder)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return run_to_the_end(tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "everybody"),
    [(signal.SIGTERM, False), (signal.SIGINT, False), (signal.SIGTERM, True)],
    ids=["SIGTERM to one", "Ctrl-C to one", "SIGTERM to torchrun"],
)
def test_a_signal_to_one_saves_and_ends_all(
    number: signal.Signals, everybody: bool, undisturbed: list[str], tmp_path: Path
) -> None:
    config = Config(folder=str(tmp_path), steps=120, every=50, pause_seconds=0.05)
    command = [*LAUNCHER, "--standalone", f"--nproc-per-node={NUM_WORKERS}", "--monitor-interval=0.1", TRAIN]
    with started([*command, config.to_json()]) as (agent,):
        wait_for(tmp_path / "checkpoints" / "step-0000000050")
        os.kill(agent.pid if everybody else children(agent.pid)[1], number)
        printed = agent.communicate(timeout=60)[0]
    assert agent.returncode not in (0, None)
    if not everybody:  # 130 on the worker that was interrupted, 143 on the other: whichever ends first
        assert re.search("exitcode  : (130|143)", printed), printed
    assert "Error:" not in printed.replace("ChildFailedError:", ""), printed
    step = checkpoint.latest(tmp_path / "checkpoints")
    assert step is not None
    assert 50 < step < 120, "between the regular ones"
    assert run_to_the_end(tmp_path) == undisturbed


def small(directory: Path | None) -> tuple[nn.Linear, lioncub.Lion, lioncub.checkpoint.resume.Run]:
    model = nn.Linear(3, 1)
    lion = lioncub.Lion(model.parameters())
    return model, lion, lioncub.resume(directory, model, lion, every=2, keep=1)


def train(
    model: nn.Linear,
    lion: lioncub.Lion,
    run: lioncub.checkpoint.resume.Run,
    total: int,
    interrupt: Callable[[int], None],
) -> None:
    with run:
        for step in run.steps(total):
            lion.zero_grad()
            model(torch.ones(3)).sum().backward()
            lion.step()
            run.extra["seen"] = [*run.extra.get("seen", []), step]
            interrupt(step)


def never(step: int) -> None: ...


def test_plain_lion_goes_on_where_it_was(tmp_path: Path) -> None:
    model, lion, run = small(tmp_path)
    with pytest.raises(SystemExit) as ended:
        train(model, lion, run, 10, lambda step: signal.raise_signal(signal.SIGTERM) if step == 4 else None)
    assert ended.value.code == 143
    assert checkpoint.latest(tmp_path) == run.step == 5
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL

    other, its_lion, again = small(tmp_path)
    with again:
        assert torch.equal(other.weight, model.weight)
        assert again.extra == {"seen": [0, 1, 2, 3, 4]}
        assert list(again.steps(5)) == []
    train(other, its_lion, again, 8, never)
    assert again.extra == {"seen": list(range(8))}
    assert checkpoint.latest(tmp_path) == 8


def test_a_second_interrupt_is_obeyed_at_once(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))

    def twice(step: int) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(*small(tmp_path), 10, twice)
    assert checkpoint.latest(tmp_path) is None


def test_without_a_folder_nothing_is_saved() -> None:
    model, lion, run = small(None)
    train(model, lion, run, 3, never)
    assert run.step == 3


def test_settings_that_cannot_work_are_named(tmp_path: Path) -> None:
    model = nn.Linear(3, 1)
    with pytest.raises(ConfigError, match="every=0"):
        lioncub.resume(tmp_path, model, lioncub.Lion(model.parameters()), every=0)
