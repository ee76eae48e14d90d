"""The demo from end to end, small."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lioncub.demo.config import METHODS, DemoConfig
from lioncub.demo.errors import WorkerFailedError
from lioncub.demo.launch import run_workers
from lioncub.demo.records import parse_steps

CLI = [sys.executable, "-m", "lioncub.cli", "demo", "--workers", "2", "--width", "32", "--layers", "1"]


def workers_of(scratch_parent: Path) -> list[int]:
    """Processes whose command line mentions a folder below `scratch_parent`."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(scratch_parent) in arguments:
            found.append(int(folder.name))
    return found


def test_a_tiny_demo_leaves_its_records_and_its_page(tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = subprocess.run(
        [*CLI, "--steps", "6", "--out", str(out)], capture_output=True, text=True, check=False, timeout=240
    )
    assert result.returncode == 0, result.stderr
    steps = parse_steps((out / "records.jsonl").read_text())
    for method, label in METHODS.items():
        mine = [step for step in steps if step.method == method]
        assert [step.step for step in mine] == list(range(7))
        assert all(step.validation_loss is not None for step in mine)
        assert label in result.stdout
    start = {step.validation_loss for step in steps if step.step == 0}
    assert len(start) == 1, "every method starts from the same weights and is judged on the same windows"
    last = {step.method: step for step in steps if step.step == 6}
    assert all((step.validation_loss or 9) < (start_loss or 0) for step in last.values() for start_loss in start)
    assert last["global"].bytes_sent > 25 * last["vote"].bytes_sent > 0
    assert last["global"].bytes_sent > last["cub"].bytes_sent > last["vote"].bytes_sent
    assert str(out / "demo.html") in result.stdout
    assert (out / "demo.html").read_text().startswith("<!doctype html>")
    assert sorted(path.name for path in out.iterdir()) == ["demo.html", "records.jsonl"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopping_the_demo_stops_its_workers(tmp_path: Path, number: signal.Signals, code: int) -> None:
    scratch, out = tmp_path / "scratch", tmp_path / "out"
    scratch.mkdir()
    command = [*CLI, "--steps", "1000000", "--out", str(out)]
    with subprocess.Popen(command, env=os.environ | {"TMPDIR": str(scratch)}, stderr=subprocess.DEVNULL) as demo:
        try:
            deadline = time.monotonic() + 120
            while not any(path.stat().st_size for path in scratch.glob("*/records.jsonl")):
                assert demo.poll() is None, "the demo ended by itself"
                assert time.monotonic() < deadline, "no step in two minutes"
                time.sleep(0.1)
            assert len(workers_of(scratch)) == 3, "torchrun and two workers"
            demo.send_signal(number)
            assert demo.wait(60) == code
        finally:
            demo.kill()
    assert workers_of(scratch) == []
    assert list(scratch.glob("lioncub-demo-*")) == []
    assert not out.exists()


def test_a_worker_that_fails_is_named_with_what_it_said(tmp_path: Path) -> None:
    config = DemoConfig(workers=2, steps=3, width=32, layers=1, out=tmp_path / "out")
    scratch = tmp_path / "scratch"
    (scratch / "store").mkdir(parents=True)  # workers cannot meet in a file that is a folder
    with pytest.raises(WorkerFailedError, match=r"worker \d failed before the first step") as caught:
        run_workers(config, scratch, lambda _: None)
    assert "store" in str(caught.value)
    assert "Traceback" in (config.out / "failed.log").read_text()
    assert workers_of(scratch) == []
