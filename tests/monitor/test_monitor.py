"""The monitor in one process: readings, records, sinks, TensorBoard."""

from __future__ import annotations

import io
import json
import math
import re
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import nn

import lioncub
from lioncub.errors import ConfigError, QuorumError, ReplicasDifferError
from lioncub.live import End, Event, Finding, Monitor, Reading, Start
from lioncub.monitor.records import Records, from_json, to_json
from lioncub.monitor.tensorboard import TensorBoard, scalars
from lioncub.monitor.window import Window
from lioncub.tools.live.dashboard import Dashboard
from tests.support.monitor_events import END, EXCHANGE, FINDING, READING, START, STATS


class Spy:
    """A sink that keeps what it takes."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.closed = 0

    def take(self, event: Event) -> None:
        self.events.append(event)

    def close(self) -> None:
        self.closed += 1

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


class Broken(Spy):
    def take(self, event: Event) -> None:
        super().take(event)
        if isinstance(event, Reading):
            raise OSError("no space left on device")


@pytest.fixture(autouse=True)
def _no_reading_before_its_steps_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lioncub.monitor.monitor.SECONDS_PER_READING", math.inf)


def make() -> tuple[nn.Module, lioncub.DistributedLion]:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    return model, lioncub.DistributedLion(model.named_parameters(), lr=1e-3)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, monitor: Monitor, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.ones(3, 4)).square().mean()
        loss.backward()
        optimizer.step()
        monitor.step(loss=loss.item())


# ---- readings and records --------------------------------------------------------------------------------------------


def test_a_reading_is_the_mean_of_its_steps() -> None:
    window = Window()
    window.add(4, 1.0, 3.0, replace(STATS, abstentions=(1,)))
    window.add(5, 3.0, None, replace(STATS, bytes_sent=300, voters=2, agreement=math.nan, abstentions=(0, 1)))
    reading = window.reading()
    assert (reading.step, reading.num_steps, reading.seconds, reading.loss) == (5, 2, 2.0, 3.0)
    exchange = reading.exchange
    assert exchange is not None
    assert (exchange.bytes_sent, exchange.bits_per_parameter, exchange.voters) == (200, 2.0, 2)
    assert exchange.agreement == 0.75
    assert exchange.abstentions == (0, 1, 1)
    assert reading.parts() == pytest.approx({"compute": 1.4, "encode": 0.1, "wait": 0.3, "apply": 0.2})


@pytest.mark.parametrize("event", [START, READING, replace(READING, exchange=None, loss=None), FINDING, END])
def test_events_survive_json(event: Event) -> None:
    assert from_json(to_json(event)) == event


def test_a_loss_that_is_not_finite_is_null_in_json() -> None:
    values = json.loads(to_json(replace(READING, loss=math.nan)))
    assert values["kind"] == "reading"
    assert values["loss"] is None


@pytest.mark.parametrize("text", ["", "{", "7", "{}", '{"kind": "reading"}', '{"kind": "else"}'])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an event"):
        from_json(text)


@pytest.mark.parametrize("event", [START, READING, FINDING, END], ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("wrong", ["text", 1e400, 10**400, -1, True, None, [], ["text"], {}, "\\ud800"], ids=repr)
def test_values_of_another_kind_are_refused_or_shown(event: Event, wrong: object) -> None:
    values = json.loads(to_json(event))
    for name in set(values) - {"kind"}:
        show_or_refuse({**values, name: wrong})
    for name in values.get("exchange", {}):
        show_or_refuse({**values, "exchange": {**values["exchange"], name: wrong}})


def show_or_refuse(values: dict[str, object]) -> None:
    """Whatever is taken for an event is drawn and printed without an error."""
    try:
        event = from_json(json.dumps(values).replace("\\\\ud800", "\\ud800"))
    except ValueError:
        return
    for is_terminal in (False, True):
        file = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        dashboard = Dashboard(Console(file=file, width=100, force_terminal=is_terminal, color_system=None))
        for each in (START, event, END):
            dashboard.take(each)
        dashboard.close()


def test_records_are_appended_after_a_line_that_was_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "live.jsonl"
    for _ in range(2):
        records = Records(path)
        records.take(START)
        records.close()
        with path.open("a") as file:
            file.write('{"kind": "rea')
    assert [text[:16] for text in path.read_text().splitlines()] == [
        to_json(START)[:16],
        '{"kind": "rea',
        to_json(START)[:16],
        '{"kind": "rea',
    ]


# ---- the monitor -----------------------------------------------------------------------------------------------------


def test_a_world_of_one_is_read(tmp_path: Path) -> None:
    spy = Spy()
    model, optimizer = make()
    with lioncub.live.Monitor(optimizer, sinks=[spy], every=4, records=tmp_path / "live.jsonl") as monitor:
        train(model, optimizer, monitor, 10)
    readings = spy.of(Reading)
    assert [(reading.step, reading.num_steps) for reading in readings] == [(3, 4), (7, 4), (9, 2)]
    for reading in readings:
        assert reading.exchange.voters == 1
        assert reading.exchange.bytes_sent == 0
        assert sum(reading.parts().values()) == pytest.approx(reading.seconds)
        assert all(seconds > 0 for seconds in reading.parts().values())
    assert spy.events[0].optimizer.startswith("DistributedLion · Vote(")  # type: ignore[union-attr]
    assert spy.events[-1].error == ""  # type: ignore[union-attr]
    assert spy.closed == 1
    assert [from_json(text) for text in (tmp_path / "live.jsonl").read_text().splitlines()] == spy.events
    assert monitor.findings == []


def test_other_optimizers_have_time_and_loss(tmp_path: Path) -> None:
    spy = Spy()
    model, _ = make()
    optimizer = torch.optim.AdamW(model.parameters())
    with Monitor(optimizer, sinks=[spy], every=2) as monitor:
        train(model, optimizer, monitor, 4)
    readings = spy.of(Reading)
    assert [reading.step for reading in readings] == [1, 3]
    assert all(reading.exchange is None and reading.parts() == {} and reading.loss > 0 for reading in readings)
    assert spy.events[0].optimizer == "AdamW · 10 parameters"  # type: ignore[union-attr]


def test_slow_steps_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lioncub.monitor.monitor.SECONDS_PER_READING", 0.0)
    spy = Spy()
    model, optimizer = make()
    with Monitor(optimizer, sinks=[spy], every=1000) as monitor:
        train(model, optimizer, monitor, 3)
    assert [reading.num_steps for reading in spy.of(Reading)] == [1, 1, 1]


def test_a_step_that_applied_nothing_does_not_count_the_last_one_twice() -> None:
    spy = Spy()
    model, optimizer = make()
    with Monitor(optimizer, sinks=[spy], every=1) as monitor:
        train(model, optimizer, monitor, 1)
        monitor.step(loss=1.0)
    assert [reading.exchange is None for reading in spy.of(Reading)] == [False, True]


def test_replicas_that_differ_are_told_before_the_error_leaves() -> None:
    spy = Spy()
    model, optimizer = make()
    error = ReplicasDifferError("not the same", ranks=[2, 5])

    def job() -> None:
        with Monitor(optimizer, sinks=[spy]) as monitor:
            train(model, optimizer, monitor, 3)
            monitor.note(error)  # a script that tried to repair it
            raise error

    with pytest.raises(ReplicasDifferError):
        job()
    assert [type(event) for event in spy.events] == [Start, Finding, Reading, End]
    (finding,) = spy.of(Finding)
    assert (finding.signature, finding.workers, finding.step) == ("replicas differ", (2, 5), 3)
    assert "workers 2, 5" in finding.message
    assert "broadcast_parameters" in finding.remedy
    assert spy.of(End)[0].error == "ReplicasDifferError: not the same"


def test_a_lost_quorum_is_a_diverging_loss() -> None:
    model, optimizer = make()
    with Monitor(optimizer) as monitor:
        for _ in range(3):
            optimizer.zero_grad()
            (model(torch.ones(3, 4)).sum() * math.nan).backward()
            with pytest.raises(QuorumError) as caught:
                optimizer.step()
            monitor.note(caught.value)
    assert [(finding.signature, finding.step) for finding in monitor.findings] == [("loss diverging", 0)]
    assert 'Levels(5, grid="float")' in monitor.findings[0].remedy


def test_a_sink_that_fails_is_dropped_with_one_warning() -> None:
    broken, healthy = Broken(), Spy()
    model, optimizer = make()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Monitor(optimizer, sinks=[broken, healthy], every=1) as monitor:
            train(model, optimizer, monitor, 5)
    assert [str(warning.message) for warning in caught] == [
        "live: Broken failed and is dropped, training goes on: no space left on device"
    ]
    assert len(broken.of(Reading)) == 1
    assert broken.closed == 1
    assert len(healthy.of(Reading)) == 5


def test_a_full_disk_does_not_stop_training() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    model, optimizer = make()
    with (
        pytest.warns(RuntimeWarning, match="Records failed and is dropped.*No space left"),
        Monitor(optimizer, records="/dev/full") as monitor,
    ):
        train(model, optimizer, monitor, 3)
    assert optimizer.stats.step == 2


def test_bad_arguments_raise_at_construction(tmp_path: Path) -> None:
    _, optimizer = make()
    (tmp_path / "file").write_text("")
    for settings in ({"every": 0}, {"every": 2.5}, {"every": True}):
        with pytest.raises(ConfigError, match="every must be a whole number"):
            Monitor(optimizer, **settings)
    with pytest.raises(ConfigError, match=r"records cannot be written to .*file/live.jsonl: "):
        Monitor(optimizer, records=tmp_path / "file" / "live.jsonl")
    with pytest.raises(ConfigError, match=r"TensorBoard's files cannot be written to .*file"):
        Monitor(optimizer, tensorboard=tmp_path / "file")
    with pytest.raises(ConfigError, match="not a Linear"):
        Monitor(nn.Linear(1, 1))  # type: ignore[arg-type]


def test_packages_are_asked_for_only_when_needed() -> None:
    code = """
import sys
sys.modules["rich"] = sys.modules["tensorboard"] = None
import torch, lioncub
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])
lioncub.live.Monitor(optimizer).close()
try:
    lioncub.live.Monitor(optimizer, tensorboard="runs")
except lioncub.errors.ConfigError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert re.match(r"writing for TensorBoard needs tensorboard: pip install 'lioncub\[live\]'", done.stdout)


def test_the_dashboard_is_found_by_its_entry_point(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    optimizer = make()[1]
    Monitor(optimizer, dashboard=True).close()
    assert capsys.readouterr().err == "ended\n"
    monkeypatch.setattr("lioncub.monitor.monitor.entry_points", lambda **_: ())
    with pytest.raises(ConfigError, match=r"dashboard=True: no package registers 'dashboard'.* Install lioncub again"):
        Monitor(optimizer, dashboard=True)


# ---- TensorBoard -----------------------------------------------------------------------------------------------------


def test_tags_of_scalars() -> None:
    values = scalars(READING)
    assert values["time/compute_seconds"] == pytest.approx(0.4)
    assert values["time/wait_share"] == pytest.approx(0.3)
    assert values["votes/abstentions"] == pytest.approx(0.3)
    assert values["network/bytes_sent"] == 160_000
    assert set(scalars(replace(READING, exchange=None))) == {"time/step_seconds", "loss"}
    assert "votes/agreement" not in scalars(replace(READING, exchange=replace(EXCHANGE, agreement=None)))


def test_tensorboard_files_read_back(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sink = TensorBoard(tmp_path)
    for event in (START, READING, replace(READING, step=1249, loss=2.25), FINDING, END):
        sink.take(event)
    sink.close()
    stored = EventAccumulator(str(tmp_path)).Reload()
    assert set(stored.Tags()["scalars"]) == set(scalars(READING))
    assert [(point.step, point.value) for point in stored.Scalars("loss")] == [(1239, 2.5), (1249, 2.25)]
    (text,) = stored.Tensors("findings/replicas_differ/text_summary")
    assert text.step == 7
    assert b"do this" in text.tensor_proto.string_val[0]
