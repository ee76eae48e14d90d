"""The picture in the terminal, and following a job from another one."""

from __future__ import annotations

import io
import math
import re
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from lioncub.errors import ConfigError
from lioncub.live import Event
from lioncub.monitor.records import to_json
from lioncub.tools.cli import app
from lioncub.tools.live.board import Board, line
from lioncub.tools.live.dashboard import Dashboard
from lioncub.tools.live.follow import LiveConfig, NotRecordsError, run_live
from lioncub.tools.live.marks import Bar, spark
from lioncub.tools.live.view import view
from tests.support.monitor_events import END, FINDING, READING, START


def drawn(events: Iterable[Event], width: int = 100) -> str:
    board = Board()
    for event in events:
        board.take(event)
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=True)
    console.print(view(board))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(len(row) <= width for row in text.splitlines())
    return text


def test_the_dashboard_shows_everything() -> None:
    text = drawn([START, replace(READING, loss=2.0), READING])
    assert "worker 0 · step 1,239 · 0:01:00" in text
    for row in (
        r"step +1 s +█+ +1 steps/s",
        r"compute +400 ms +█+.?╌+ +40%",
        r"wait +300 ms +█+.?╌+ +30%",
        r"loss +2.5 +▁▇ +best 2",
        r"agreement +71.3% ",
        r"sent +160 kB +1.5 bits/parameter +1.28 Mbit/s",
        r"voters +3",
        r"abstained +worker 2 in 4 steps, worker 5 in 2 steps",
    ):
        assert re.search(row, text), (row, text)


OBEYED = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\b"
"""What a terminal would obey."""


@pytest.mark.parametrize("is_terminal", [True, False])
def test_nothing_in_a_record_is_obeyed_by_the_terminal(is_terminal: bool) -> None:
    start = replace(START, optimizer=f"optimizer {OBEYED}")
    finding = replace(FINDING, signature=f"sign {OBEYED}", message=f"message {OBEYED}", remedy=f"remedy {OBEYED}")
    console = Console(file=io.StringIO(), width=400, force_terminal=is_terminal, color_system=None)
    dashboard = Dashboard(console)
    for event in (start, READING, finding, replace(END, error=f"error {OBEYED}")):
        dashboard.take(event)
    dashboard.close()
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    assert "owned" in text
    for obeyed in ("\x1b]", "\x07", "\x1b[2J\x9b", "\x9b", "\b"):
        assert obeyed not in text


@pytest.mark.parametrize("width", [40, 60, 100, 200])
def test_the_dashboard_fits_its_terminal(width: int) -> None:
    text = drawn([START, READING, *[replace(FINDING, step=step) for step in range(5)], END], width)
    assert text.count("▲ replicas differ") == 1, "the last of its kind"
    assert "at step 4, 5 times" in text.replace("\n", " ")
    assert "agreement" in text


def test_the_dashboard_before_the_first_step_and_after_a_restart() -> None:
    assert "waiting for the first steps" in drawn([START])
    assert "abstained" not in drawn([START, READING, END, START])
    assert "abstained" not in drawn([START, READING, replace(END, error="Boom"), START])


def test_the_dashboard_of_another_optimizer_and_of_a_loss_that_is_not_finite() -> None:
    text = drawn([START, replace(READING, exchange=None, loss=math.nan)])
    assert "nan" in text
    assert "best" not in text
    assert "voters" not in text


def test_a_job_that_went_silent_and_one_that_failed() -> None:
    assert "silent for" in drawn([START, READING])
    assert "silent" not in drawn([START, replace(READING, time=time.time())])
    failed = drawn([START, READING, replace(END, error="PeerLostError: worker 3")])
    assert "failed" in failed
    assert "PeerLostError: worker 3" in failed


def test_bars_and_lines_over_time() -> None:
    def bar(*shares: float) -> str:
        console = Console(file=io.StringIO(), width=10, color_system=None)
        console.print(Bar([(share, "red") for share in shares]))
        text: str = console.file.getvalue()  # type: ignore[attr-defined]
        return text.rstrip("\n")

    assert [bar(0.0), bar(1e-6), bar(0.55), bar(1.0), bar(7.0)] == [
        "╌" * 10,
        "▏" + "╌" * 9,
        "█████▌╌╌╌╌",
        "█" * 10,
        "█" * 10,
    ]
    assert bar(0.2, 0.3, 0.1) == "██████╌╌╌╌"
    assert spark([1, 2, 3], 10) == "▁▄▇"
    assert spark([1, 1, 3, 3], 2) == "▁▇"
    assert spark([1, math.nan, 2], 3) == "▁ ▇"
    assert spark([5.0, 5.0], 5) == "▁▁"
    assert spark([], 5) == ""


def test_where_there_is_no_terminal_it_prints_lines() -> None:
    console = Console(file=io.StringIO(), width=40)
    dashboard = Dashboard(console)
    for event in (START, READING, replace(READING, step=1249), FINDING, replace(READING, step=1259), END):
        dashboard.take(event)
    dashboard.close()
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    board = Board()
    board.take(READING)
    first, *others = text.splitlines()
    assert first == line(board, READING)
    assert first.startswith(
        "step 1,239 · loss 2.5 · 1 s a step (compute 40%, encode 10%, wait 30%, apply 20%) · sent 160 kB"
    )
    assert others[:2] == ["▲ replicas differ at step 7: oh.", "→ do this"]
    assert others[2].startswith("step 1,259")
    assert others[3:] == ["ended"]


def test_on_a_terminal_it_draws_and_leaves_the_last_picture() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    dashboard = Dashboard(console)
    for event in (START, READING, replace(READING, step=1249), END):
        dashboard.take(event)
    dashboard.close()
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    assert "step 1,249" in text.rpartition("╭")[2]
    assert "· ended" in text.rpartition("╭")[2]


# ---- following -------------------------------------------------------------------------------------------------------


def test_a_growing_file_is_followed_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lioncub.tools.live.follow.POLL_SECONDS", 0.01)
    path = tmp_path / "live.jsonl"
    path.write_text(to_json(START) + '\n{"kind": "rea\n')
    console = Console(file=io.StringIO(), width=200)

    def job() -> None:
        text = "".join(to_json(event) + "\n" for event in (READING, FINDING, END))
        for at in range(0, len(text), 50):
            with path.open("a") as file:
                file.write(text[at : at + 50])
            time.sleep(0.005)

    writer = threading.Thread(target=job)
    writer.start()
    run_live(LiveConfig(records=path), console)
    writer.join()
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    assert [row.split(" · ")[0] for row in text.splitlines()] == [
        "step 1,239",
        "▲ replicas differ at step 7: oh.",
        "→ do this",
        "ended",
    ]


def test_the_command_shows_a_finished_job(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    path.write_text("".join(to_json(event) + "\n" for event in (START, END, START, READING, END)))
    result = CliRunner().invoke(app, ["live", str(path)], catch_exceptions=False)
    assert result.exit_code == 0
    assert "step 1,239" in result.stdout


def test_ctrl_c_ends_following_cleanly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "live.jsonl"
    path.write_text(to_json(START) + "\n" + to_json(READING) + "\n")

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lioncub.tools.live.follow.time.sleep", interrupt)
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    run_live(LiveConfig(records=path), console)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    assert "step 1,239" in text
    assert text.endswith("\x1b[?25h"), "the cursor is back"


def test_what_cannot_be_followed_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no file .*Monitor\(optimizer, records="):
        LiveConfig(records=tmp_path / "none.jsonl")
    path = tmp_path / "notes.txt"
    path.write_text("hello\n")
    with pytest.raises(NotRecordsError, match="not a file of a monitor's records"):
        run_live(LiveConfig(records=path))
