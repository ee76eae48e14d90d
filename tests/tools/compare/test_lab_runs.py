"""Comparisons as users run them: real hosts, real training, bytes from the counters of their interfaces."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from lioncub.tools.cli import app
from lioncub.tools.compare.config import CompareConfig
from lioncub.tools.compare.methods import METHODS
from lioncub.tools.compare.run import run_compare
from lioncub.tools.lab.isolation import find_isolation

pytestmark = pytest.mark.slow

ISOLATION = find_isolation()
networked = pytest.mark.skipif(not ISOLATION.networked, reason=f"no network can be made here: {ISOLATION.reason}")


def quiet() -> Console:
    return Console(file=io.StringIO(), width=200)


@networked
@pytest.mark.parametrize("hosts", [2, 4, 8])
def test_a_vote_sends_what_the_papers_say_and_thirty_times_less_than_float32(hosts: int, tmp_path: Path) -> None:
    config = CompareConfig(
        job="gpt-10m",
        methods=("ddp-lion", "vote"),
        rates=("none",),
        hosts=(hosts,),
        examples=(16,),
        steps=3,
        out=tmp_path,
    )
    found = {cell.method: cell for cell in run_compare(config, quiet())}
    vote, dense = found["vote"], found["ddp-lion"]
    assert not vote.error, vote.error
    assert not dense.error, dense.error
    assert vote.parameters >= 10_000_000
    limit = 2 * (hosts - 1) / hosts * vote.parameters / 8
    assert 0.99 * limit < vote.bytes_sent <= 1.03 * limit
    assert vote.bytes_planned <= vote.bytes_sent <= 1.02 * vote.bytes_planned
    assert dense.bytes_sent >= 30 * vote.bytes_sent


@networked
def test_every_method_trains_on_a_shaped_network(tmp_path: Path) -> None:
    config = CompareConfig(
        job="gpt-1m", rates=("1gbit",), hosts=(2,), examples=(128,), steps=3, validations=1, out=tmp_path
    )
    cells = {cell.method: cell for cell in run_compare(config, quiet())}
    assert {method: cells[method].error for method in METHODS} == dict.fromkeys(METHODS, "")
    for method, cell in cells.items():
        assert cell.rates == ("1gbit", "1gbit")
        assert cell.update_seconds is not None
        assert 0 < cell.update_seconds < cell.step_seconds
        assert [point.step for point in cell.points] == list(range(7))
        if method == "compute":
            assert cell.bytes_sent < 10_000
            assert cell.final_loss is None
        else:
            assert cell.bytes_sent > 100_000
            assert cell.final_loss is not None
            assert cell.final_loss < (cell.points[0].validation_loss or 0)  # the rate still rises: it has hardly moved


@networked
def test_the_demo_ends_with_the_sentence_and_the_page(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["demo", "--steps", "2", "--rate", "1gbit", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "Lion Cub, 4 bits, float" in done.output
    assert "fewer bytes" in done.output.replace("\n", " ")
    assert done.output.replace("\n", "").endswith("report.html")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Content-Security-Policy" in page


@networked
@pytest.mark.skipif(os.geteuid() != 0, reason="only root is called by sudo")
def test_a_comparison_under_sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    config = CompareConfig(
        job="gpt-230k", data="stdlib", methods=("vote",), rates=("1gbit",), hosts=(2,), steps=3, out=tmp_path
    )
    (cell,) = run_compare(config, quiet())
    assert not cell.error, cell.error
