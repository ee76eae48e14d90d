"""Settings, records and resuming of a comparison. Labs are real, but their hosts only write a journal."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lioncub.compare import run
from lioncub.compare.builders import BUILDERS
from lioncub.compare.config import CompareConfig, WorkerConfig
from lioncub.compare.methods import METHODS
from lioncub.compare.records import Cell, Point, Split, parse_cell, read_cells, shared
from lioncub.errors import ConfigError


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
        "split": Split(compute=0.45, wait=0.0, update=0.05),
        "points": (Point(step=0, seconds=0, bytes_sent=0, validation_loss=5.0),),
    }
    return Cell(method=method, **(usual | given))


def test_every_method_has_a_builder() -> None:
    assert list(BUILDERS) == list(METHODS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
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
        ({"lr": -1.0}, "lr must be positive"),
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


def test_a_cell_that_was_run_again_counts_once(tmp_path: Path) -> None:
    first, second = cell(error="died"), cell(step_seconds=0.4)
    (tmp_path / "r.jsonl").write_text("".join(made.to_json() + "\n" for made in (first, cell("mean"), second)))
    assert read_cells(tmp_path / "r.jsonl") == [second, cell("mean")]


def test_cells_of_other_settings_are_other_cells(tmp_path: Path) -> None:
    first, second = cell(settings={"lr": 1}), cell(settings={"lr": 2})
    (tmp_path / "r.jsonl").write_text("".join(made.to_json() + "\n" for made in (first, second)))
    assert read_cells(tmp_path / "r.jsonl") == [first, second]
    assert first.group != second.group


def test_a_step_is_shared_out_by_what_computing_alone_takes() -> None:
    ideal = cell("compute", step_seconds=0.25, split=Split(compute=0.2, wait=0.0, update=0.05))
    _, found = shared([ideal, cell()])
    assert found.split is not None
    assert (found.split.compute, found.split.update) == (0.2, 0.05)
    assert found.split.wait == pytest.approx(0.25)
    for elsewhere in (replace(ideal, hosts=4), replace(ideal, seed=1), replace(ideal, settings={"lr": 1})):
        assert shared([elsewhere, cell()])[1] == cell()


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
    config = CompareConfig(
        job="gpt-1m", methods=("vote", "mean", "cub-1"), rates=("1gbit",), hosts=(2,), out=tmp_path / "out"
    )
    first = {made.method: made for made in run.run_compare(config, console)}
    assert set(first) == {"vote", "mean", "cub-1"}
    assert "this [/method] <cannot> work" in first["mean"].error
    assert first["vote"].error == first["cub-1"].error == ""
    assert first["vote"].split == Split(compute=0.75, wait=0.0, update=0.25)
    assert first["vote"].command
    assert first["vote"].machine["commit"]

    again = {made.method: made for made in run.run_compare(config, console)}
    assert again["vote"] == first["vote"]
    lines = [json.loads(line)["method"] for line in config.records.read_text().splitlines()]
    assert sorted(lines) == ["cub-1", "mean", "mean", "vote"]
    assert "3/3" in console.export_text()

    other = replace(config, seed=1, methods=("vote",))
    assert [made.seed for made in run.run_compare(other, console)] == [1]


def test_a_worker_config_survives_its_file() -> None:
    config = WorkerConfig(settings={"a": 1}, methods=("vote",), examples=16, interface="eth0", journal="j")
    assert WorkerConfig.from_json(config.to_json()) == config


def test_what_cannot_be_validated_is_refused_before_hosts_are_started(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="multiple of 100 tokens"):
        run.run_compare(CompareConfig(job="gpt-1m", examples=(100,), validations=1, out=tmp_path), Console(quiet=True))
    with pytest.raises(ConfigError, match="64 examples to validate cannot be shared by 100 hosts"):
        run.run_compare(CompareConfig(job="gpt-1m", hosts=(100,), validations=1, out=tmp_path), Console(quiet=True))
