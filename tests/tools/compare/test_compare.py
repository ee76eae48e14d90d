"""Settings, records and resuming of a comparison. Labs are real, but their hosts only write a journal."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from lioncub.errors import ConfigError
from lioncub.records import from_json, to_json
from lioncub.tools.cli import app
from lioncub.tools.compare import run
from lioncub.tools.compare.builders import BUILDERS
from lioncub.tools.compare.config import JOBS, CompareConfig, WorkerConfig
from lioncub.tools.compare.errors import CompareError
from lioncub.tools.compare.methods import METHODS
from lioncub.tools.compare.records import Cell, Point, parse_cell, read_cells
from lioncub.tools.jobs import catalogue
from tests.support.paths import DOCS

RECORDS = DOCS / "records"


def cell(method: str = "vote", **given: Any) -> Cell:
    usual: dict[str, Any] = {
        "label": METHODS[method],
        "job": "gpt-1m",
        "unit": "nats per byte",
        "hosts": 2,
        "rates": ("1gbit", "1gbit"),
        "examples": 128,
        "examples_unit": "tokens",
        "parameters": 1000,
        "seed": 0,
        "lr": 1e-3,
        "weight_decay": 0.1,
        "step_seconds": 0.5,
        "update_seconds": 0.05,
        "run": "2026-11-16 10:00:00 UTC abc",
        "points": (Point(step=0, seconds=0, bytes_sent=0, validation_loss=5.0),),
    }
    return Cell(method=method, **(usual | given))


def test_help_lists_all_jobs_and_methods() -> None:
    said = CliRunner().invoke(app, ["compare", "--help"], env={"COLUMNS": "200"}).output
    listed = " ".join(said.replace("│", " ").split())
    assert f"What is trained: {', '.join(JOBS)}." in listed
    assert all(f"{name} ({label})" in listed for name, label in METHODS.items())
    assert set(JOBS) == set(catalogue.JOBS)


def test_every_method_has_a_builder() -> None:
    assert list(BUILDERS) == list(METHODS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"job": "gpt"}, "there is no job 'gpt': choose from gpt-230k, "),
        ({"methods": ("votes",)}, "there is no method 'votes': choose from compute, ddp-lion"),
        ({"methods": ()}, "methods must be one or more"),
        ({"rates": ("1gbit", "1gbit")}, "rates must be one or more different"),
        ({"rates": ("fast",)}, "no rate"),
        ({"hosts": (1,)}, "hosts must be 2 to 150"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"seconds": 0.0}, "seconds must be positive"),
        ({"warmup": 2}, "warmup must be at least 3"),
        ({"rates": ("1gbit", "1000mbit")}, "rates must be one or more different"),
        ({"seconds": float("nan")}, "seconds must be positive"),
        ({"seconds": float("inf")}, "seconds must be positive and finite"),
        ({"lr": -1.0}, "lr must be positive"),
        ({"seed": 2**31}, "seed at most"),
        ({"examples": (10**8,)}, "examples must be at most 1,000,000"),
        ({"out": Path(__file__)}, "out must be a folder"),
    ],
)
def test_bad_settings(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CompareConfig(**given)


def test_places_are_all_combinations() -> None:
    config = CompareConfig(rates=("100mbit", "1gbit"), hosts=(2, 4), examples=(16, 128))
    assert len({(each.rate, each.hosts, each.examples) for each in config.conditions()}) == 8


def test_a_record_survives_its_file(tmp_path: Path) -> None:
    made = cell(rates=("1gbit", "100mbit"), settings={"seed": 0, "lr": None})
    assert parse_cell(made.to_json()) == made
    assert made.link == "1gbit, host 1 100mbit"
    (tmp_path / "r.jsonl").write_text(made.to_json() + "\n" + made.to_json()[:50])
    assert read_cells(tmp_path / "r.jsonl") == [made]


@pytest.mark.parametrize("line", ["", "[]", '{"kind": "step"}', '{"kind": "cell"}', '{"kind": "cell", "rates": 3}'])
def test_other_lines_are_no_records(line: str) -> None:
    with pytest.raises(ValueError, match="not a record of a comparison"):
        parse_cell(line)


def test_a_last_line_without_end_or_depth_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text(cell().to_json() + "\n" + "[" * 100_000)
    assert read_cells(tmp_path / "r.jsonl") == [cell()]


@pytest.mark.parametrize("path", [*sorted(RECORDS.glob("compare/*.jsonl")), RECORDS / "demo.jsonl"], ids=str)
def test_published_records_are_read(path: Path) -> None:
    assert read_cells(path)


def test_a_failure_that_was_made_good_is_forgotten_and_other_runs_stay_apart(tmp_path: Path) -> None:
    first, second, third = cell(error="died"), cell(step_seconds=0.4, run="b"), cell(step_seconds=0.3, run="c")
    (tmp_path / "r.jsonl").write_text("".join(made.to_json() + "\n" for made in (first, cell("mean"), second, third)))
    assert read_cells(tmp_path / "r.jsonl") == [cell("mean"), second, third]
    assert second.group != third.group


def test_cells_of_other_settings_are_other_cells(tmp_path: Path) -> None:
    first, second = cell(settings={"lr": 1}), cell(settings={"lr": 2})
    (tmp_path / "r.jsonl").write_text("".join(made.to_json() + "\n" for made in (first, second)))
    assert read_cells(tmp_path / "r.jsonl") == [first, second]
    assert first.group != second.group


def test_loss_is_first_reached_where_it_is_validated() -> None:
    losses = [5.0, None, 3.0, 2.0, 2.5]
    made = cell(
        points=tuple(Point(step=s, seconds=s, bytes_sent=s, validation_loss=loss) for s, loss in enumerate(losses))
    )
    assert made.final_loss == 2.5
    found = made.first_at(2.75)
    assert found is not None
    assert found.step == 3
    assert made.first_at(1.0) is None


HOST = """
import json, os, sys
told = json.loads(open(sys.argv[1]).read())
if os.environ["RANK"] == "0":
    with open(told["journal"], "a") as journal:
        def write(kind, **values):
            journal.write(json.dumps({"kind": kind, **values}) + "\\n")
            journal.flush()
        for method in told["methods"]:
            write("begin", method=method)
            if method == "mean":
                raise RuntimeError("this [/method] <cannot> work")
            point = dict(step=1, seconds=1.0, bytes_sent=10, train_loss=1.0, validation_loss=2.0)
            write("step", **point, total=4)
            write("end", method=method, data="stdlib", unit="nats", examples_unit="tokens", parameters=10, lr=0.1,
                  weight_decay=0.0, steps=1, step_seconds=1.0, lower=1.0, upper=1.0, update_seconds=0.25,
                  bytes_sent=1.0, bytes_received=1.0, bytes_planned=1.0, points=[point])
"""


@pytest.fixture
def fake_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "host.txt").write_text(HOST)
    monkeypatch.setattr(run, "WORKER", (str(tmp_path / "host.txt"),))


@pytest.mark.usefixtures("fake_hosts")
def test_what_is_there_is_not_run_again_and_what_failed_is(tmp_path: Path) -> None:
    console = Console(record=True, width=200)
    methods = ("compute", "vote", "mean", "cub-1")
    config = CompareConfig(job="gpt-1m", methods=methods, rates=("1gbit",), hosts=(2,), out=tmp_path / "out")
    first = {made.method: made for made in run.run_compare(config, console)}
    assert set(first) == set(methods)
    assert "this [/method] <cannot> work" in first["mean"].error
    assert first["vote"].error == first["cub-1"].error == ""
    assert (first["vote"].update_seconds, first["vote"].unit) == (0.25, "nats")
    assert first["mean"].examples_unit == "tokens"
    assert first["vote"].command
    assert first["vote"].machine["commit"]

    again = run.run_compare(config, console)
    assert first["vote"] in again
    lines = [json.loads(line)["method"] for line in config.records.read_text().splitlines()]
    assert sorted(lines) == ["compute", "compute", "cub-1", "mean", "mean", "vote"], "what is held against it, too"
    assert len({made.run for made in again}) == 2
    assert "4/4" in console.export_text()

    other = replace(config, seed=1, methods=("vote",))
    assert [made.seed for made in run.run_compare(other, console)] == [1]


@pytest.mark.usefixtures("fake_hosts")
@pytest.mark.parametrize("change", ["commit", "threads"])
def test_cells_of_another_commit_or_number_of_threads_are_made_again(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = CompareConfig(job="gpt-1m", methods=("vote",), rates=("1gbit",), hosts=(2,), out=tmp_path / "out")
    (first,) = run.run_compare(config, Console(quiet=True))
    if change == "threads":
        monkeypatch.setenv("OMP_NUM_THREADS", "7")
    else:
        monkeypatch.setattr(run, "machine", lambda: {**first.machine, "commit": "another", "date": "now"})
    (second,) = run.run_compare(config, Console(quiet=True))
    assert first.run != second.run
    assert len(config.records.read_text().splitlines()) == 2


def test_trouble_with_the_records_is_named_before_anything_is_trained(tmp_path: Path) -> None:
    config = CompareConfig(job="gpt-1m", methods=("vote",), out=tmp_path)
    config.records.write_text("no record\n")
    with pytest.raises(CompareError, match=r"records.jsonl, line 1: not a record.*; remove the line"):
        run.run_compare(config, Console(quiet=True))
    config.records.unlink()
    config.records.mkdir()
    with pytest.raises(CompareError, match=r"records.jsonl cannot be written: Is a directory; choose another --out"):
        run.run_compare(config, Console(quiet=True))


def test_a_worker_config_survives_its_file() -> None:
    config = WorkerConfig(settings={"a": 1}, methods=("vote",), examples=16, interface="eth0", journal="j")
    assert from_json(to_json(config), WorkerConfig) == config


def test_what_cannot_be_validated_is_refused_before_hosts_are_started(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="multiple of 100 tokens"):
        run.run_compare(CompareConfig(job="gpt-1m", examples=(100,), validations=1, out=tmp_path), Console(quiet=True))
    with pytest.raises(ConfigError, match="64 examples to validate cannot be shared by 100 hosts"):
        run.run_compare(CompareConfig(job="gpt-1m", hosts=(100,), validations=1, out=tmp_path), Console(quiet=True))
