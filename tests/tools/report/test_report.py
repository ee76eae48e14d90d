"""The report of a comparison: its figures, its sentence, its page, and what it refuses."""

from __future__ import annotations

import io
import json
import re
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from lioncub.errors import ConfigError
from lioncub.tools.cli import app
from lioncub.tools.compare.records import Cell, Point, parse_cell
from lioncub.tools.report import curves
from lioncub.tools.report.comparison import Place, bits_per_second, learned, places_of
from lioncub.tools.report.comparison_page import page
from lioncub.tools.report.config import MARKERS, ReportConfig
from lioncub.tools.report.errors import ReportError
from lioncub.tools.report.experiments import experiments
from lioncub.tools.report.headline import headline
from lioncub.tools.report.provenance import sentence
from lioncub.tools.report.run import markdown, read_records, run_report
from lioncub.tools.report.tables import table, tables
from lioncub.tools.reporting.grid import Grid
from lioncub.tools.reporting.page import TEMPLATES, Plot, data, drawn, figure
from lioncub.tools.reporting.units import digits
from tests.support.comparison_records import METHODS, cell, cells

EVIL = "</script><script>alert(1)</script>"


def curve(*losses: float, seconds: float = 1.0, bytes_per_step: int = 100) -> dict[str, Any]:
    """Points from an untrained model's loss on, and the step that goes with them."""
    points = tuple(
        Point(step=n, seconds=n * seconds, bytes_sent=n * bytes_per_step, validation_loss=loss)
        for n, loss in enumerate(losses)
    )
    step = {"step_seconds": seconds, "step_seconds_quartiles": (0.9 * seconds, 1.2 * seconds)}
    return {"points": points, "bytes_sent": float(bytes_per_step)} | step


def place_of(*members: Cell) -> Place:
    (place,) = places_of(members)
    return place


def write(path: Path, members: Iterable[Cell]) -> Path:
    path.write_text("".join(f"{each.to_json()}\n" for each in members), encoding="utf-8")
    return path


# ---- figures ---------------------------------------------------------------------------------------------------------


def test_figures_are_taken_against_the_baseline_and_compute_alone_at_the_same_place() -> None:
    ours = cell("vote", **curve(5.0, 3.0, 2.5, 2.0, seconds=0.5, bytes_per_step=10))
    place = place_of(
        cell("compute", step_seconds=0.25, points=()), ours, cell("ddp-lion", **curve(5.0, 4.0, 2.2, 1.9, seconds=2.0))
    )
    assert [each.method for each in place.cells] == ["ddp-lion", "vote", "compute"]
    assert place.speedup(ours) == 4
    assert place.share_of_ideal(ours) == 0.5
    assert place.fewer_bytes(ours) == 10
    assert place.common_loss == 2.0
    assert [place.seconds_to_common_loss(each) for each in place.cells] == [6.0, 1.5, None]


def test_what_failed_or_is_missing_has_no_figures() -> None:
    failed = cell("vote", error="out of memory", points=(), step_seconds=0.0)
    place = place_of(failed, cell("cub-4"))
    assert place.speedup(failed) is None
    assert place.speedup(place.cells[1]) is None
    assert place.share_of_ideal(place.cells[1]) is None
    assert place.fewer_bytes(place.cells[1]) is None


def test_a_method_that_learned_nothing_does_not_set_the_common_loss() -> None:
    diverged = cell("cub-8", **curve(5.0, 6.0, 9.0))
    place = place_of(cell("vote", **curve(5.0, 3.0)), cell("ddp-lion", **curve(5.0, 2.0)), diverged)
    assert not learned(diverged)
    assert place.common_loss == 3.0
    assert place.seconds_to_common_loss(diverged) is None


def test_places_are_sorted_by_hosts_and_rate_and_apart_by_seed() -> None:
    links = [replace(cell(), rates=(link,) * 4) for link in ("1gbit", "100mbit", "2.5Gbit")]
    mixed = replace(cell(), rates=("1gbit", "1gbit", "50mbit", "1gbit"))
    others = [replace(cell(), rates=()), cell(hosts=2), cell(seed=1)]
    names = [
        (place.cells[0].hosts, place.cells[0].link, place.cells[0].seed)
        for place in places_of([*links, mixed, *others])
    ]
    assert names == [
        (2, "100mbit", 0),
        (4, "1gbit, host 2 50mbit", 0),
        (4, "100mbit", 0),
        (4, "100mbit", 1),
        (4, "1gbit", 0),
        (4, "2.5Gbit", 0),
        (4, "unshaped", 0),
    ]


@pytest.mark.parametrize(
    ("rate", "bits"),
    [
        ("100mbit", 1e8),
        ("2.5Gbit", 2.5e9),
        ("640kbit", 64e4),
        ("fast", None),
        ("", None),
    ],
)
def test_rates_are_figures(rate: str, bits: float | None) -> None:
    assert bits_per_second(rate) == bits


def test_three_digits() -> None:
    assert [digits(n) for n in (0.1234, 1.0, 12.34, 99.96, 1234.5)] == ["0.123", "1", "12.3", "100", "1,234"]


# ---- the sentence ----------------------------------------------------------------------------------------------------

LION = cell("ddp-lion", **curve(5.0, 4.0, 3.0, 2.0, seconds=10.0, bytes_per_step=3200))
CUB = cell("cub-4", **curve(5.0, 4.0, 2.9, 2.1, 1.9, seconds=2.0, bytes_per_step=400))


def test_the_headline_compares_time_and_bytes_at_the_best_loss_that_both_reached() -> None:
    assert headline([LION, CUB]) == (
        "Lion Cub 4 bits reached loss 2.000 in 8 s, DDP Lion in 30 s: 3.75 times faster, 6 times fewer bytes."
    )


def test_the_fastest_lion_cub_that_reached_the_loss_is_taken() -> None:
    hasty = cell("cub-1", **curve(5.0, 3.5, 3.4, seconds=0.1))  # does not come as far
    slower = cell("cub-8", **curve(5.0, 2.5, 1.5, seconds=5.0))
    vote = cell("vote", **curve(5.0, 1.0, seconds=0.1))  # no Lion Cub
    assert headline([LION, slower, CUB, hasty, vote]).startswith("Lion Cub 4 bits reached loss 2.000 in 8 s")


def test_without_a_lion_cub_the_fastest_that_is_not_ddp_is_taken() -> None:
    others = [cell("ddp-fp16", **curve(5.0, 1.0, seconds=0.1)), cell("vote", **curve(5.0, 2.0, seconds=2.0))]
    assert headline([LION, *others, cell("compute")]).startswith("Distributed Lion vote reached loss 2.000 in 2 s")


@pytest.mark.parametrize(
    ("seconds", "said"), [(15.0, "2 times slower"), (7.5, "no faster"), (7.2, "no faster"), (3.0, "2.5 times faster")]
)
def test_what_is_not_faster_is_not_called_faster(seconds: float, said: str) -> None:
    slow = cell("cub-4", **curve(5.0, 4.0, 3.0, 2.5, 2.0, seconds=seconds, bytes_per_step=4800))
    assert f": {said}, 2 times more bytes." in headline([LION, slow])


def test_the_headline_holds_against_adamw_where_that_was_trained() -> None:
    adamw = cell("ddp-adamw", **curve(5.0, 2.5, seconds=1.0))
    assert "DDP AdamW in" in headline([LION, adamw, CUB])
    assert "DDP AdamW in" in headline([adamw, CUB])


def test_the_headline_says_what_is_missing() -> None:
    assert headline([]) == "There are no records to compare."
    assert "no validation losses of float32 (ddp-adamw or ddp-lion)" in headline([CUB])
    failed = cell("ddp-lion", error="worker 1 was lost", points=(), step_seconds=0.0)
    assert headline([failed, CUB]).endswith("DDP Lion failed: worker 1 was lost")
    assert "no validation losses of Lion Cub" in headline([LION, cell("compute")])
    assert "Lion Cub 4 bits failed: full" in headline([LION, replace(CUB, error="full")])
    assert "at the same place" in headline([LION, replace(CUB, hosts=2)])
    assert "no validation losses" in headline([LION, cell("cub-4", **curve(5.0, 6.0))])
    assert "Nothing to compare" in headline([LION, cell("cub-4", **curve(9.0, 8.0))])  # worse than untrained Lion


def test_of_several_places_the_headline_names_one_and_the_range() -> None:
    there = [replace(LION, examples=512), replace(CUB, examples=512, **curve(5.0, 2.0, seconds=60.0))]
    text = headline([LION, CUB, *there, cell("cub-4", examples=16)])
    assert text.startswith("gpt-10m, 100mbit, 4 hosts, 128 tokens each: Lion Cub 4 bits reached loss 2.000 in 8 s")
    assert text.endswith("Over 3 places: 0.5 to 3.75 times as fast; 1 cannot be compared.")


# ---- tables and plots ------------------------------------------------------------------------------------------------


def test_the_table_has_every_figure_and_every_failure() -> None:
    failed = cell("vote", error="lost\n  worker 2", points=(), step_seconds=0.0)
    grid = table([place_of(LION, CUB, failed)])
    rows = [dict(zip(grid.headings, row, strict=True)) for row in grid.rows]
    where = {"link": "100mbit", "hosts": "4", "tokens": "128"}
    assert rows[2] == where | {
        "method": "Lion Cub 4 bits", "step, ms": "2,000 (1,800–2,400)", "speedup": "5x", "of ideal": "–",
        "sent/step": "400 B", "fewer bytes": "8x", "final loss": "1.900", "common loss": "2.000", "s to it": "8",
    }  # fmt: skip
    assert rows[1]["method"] == "Distributed Lion vote\nfailed: lost worker 2"
    assert {rows[1][name] for name in ("step, ms", "speedup", "final loss", "s to it")} == {"–"}


def test_job_and_seed_are_columns_where_there_are_several() -> None:
    assert "job" not in table(places_of([CUB])).headings
    assert {"job", "seed"} <= set(table(places_of([CUB, replace(CUB, job="vit-1m", seed=3)])).headings)


def test_tables_fit_a_terminal_of_80_columns() -> None:
    console = Console(file=io.StringIO(), width=80)
    for grid in tables(places_of(cells())):
        console.print(grid.to_rich())
    assert isinstance(console.file, io.StringIO)
    printed = console.file.getvalue()
    assert "…" not in printed
    for name in (made.label for made in METHODS.values()):
        assert printed.count(name) >= 9


def test_the_experiments_are_read_off_the_cells() -> None:
    def at(method: str, seconds: float, **where: Any) -> Cell:
        return cell(method, step_seconds=seconds, points=(), **where)

    here = [
        at("compute", 0.2),
        at("ddp-lion", 1.0),
        at("vote", 0.25, bytes_sent=2.75e6, parameters=11_000_000),  # 220 ms at 100 Mbit
        at("cub-4", 0.4),
    ]
    more = [at(member.method, 2 * member.step_seconds, hosts=8) for member in here]
    plain, widths, limits, hosts = experiments(places_of([*here, *more]))
    assert plain.rows[0][1:] == ["200", "1,000", "800", "80%", "5x"]
    assert widths.rows[0][1:] == ["250 (4x)", "–", "–", "400 (2.5x)", "–"]
    assert [row[1:5] for row in hosts.rows] == [["200", "1,000", "250", "400"], ["400", "2,000", "500", "800"]]
    assert hosts.rows[0][5:] == ["4x", "2.00"]
    assert limits.rows[0][1:] == ["200", "220", "250", "4x", "5x", "80%", "88%"]
    assert experiments(places_of(here[:1])) == []
    assert [grid.title for grid in experiments(places_of(here))] == [
        "Communication of plain Lion",
        "Speed at each bit width",
        "How near the limit",
    ]


def test_the_first_three_at_the_same_loss_are_named() -> None:
    vote = cell("vote", **curve(5.0, 4.0, 3.0, 1.95, seconds=1.0))
    (race,) = (grid for grid in experiments(places_of([LION, CUB, vote])) if grid.title == "First at the same loss")
    assert race.rows[0][1:] == ["2.000", f"{vote.label}: 3", f"{CUB.label}: 8", f"{LION.label}: 30", "30"]


def test_links_views_and_second_lines_of_a_table_are_escaped() -> None:
    grid = Grid("", ["a", "b"], [["<x>\n<y>", "1"]], links=['#"'], views=[3])
    html = TEMPLATES.get_template("parts.html").module.table(grid)  # type: ignore[attr-defined]
    assert '<tr data-view="3"><td><a href="#&#34;">&lt;x&gt;</a><br><span class="soft">&lt;y&gt;</span></td>' in html
    assert "| &lt;x&gt;<br>&lt;y&gt; | 1 |" in Grid("", ["a", "b"], [["<x>\n<y>", "1"]]).to_markdown()


def test_curves_leave_out_the_untrained_model_and_compute_alone() -> None:
    place = place_of(LION, CUB, cell("compute"))
    time = curves.loss_by_time(place)
    assert time is not None
    assert [(trace.name, list(trace.x)) for trace in time.data] == [
        ("DDP Lion", [10.0, 20.0, 30.0]),
        ("Lion Cub 4 bits", [2.0, 4.0, 6.0, 8.0]),
    ]
    assert time.layout.xaxis.type is None
    steps = curves.loss_by_step(place)
    assert steps is not None
    assert [list(trace.x) for trace in steps.data] == [[1, 2, 3], [1, 2, 3, 4]]
    assert [list(trace.y) for trace in steps.data] == [list(trace.y) for trace in time.data]
    assert curves.loss_by_time(place_of(cell("compute"))) is None
    far = curves.loss_by_bytes(place_of(LION, replace(CUB, **curve(5.0, 2.0, bytes_per_step=10))))
    assert far is not None
    assert far.layout.xaxis.type == "log"


def test_bars_add_up_to_the_step_and_what_has_no_split_is_shown_whole() -> None:
    whole = replace(CUB, update_seconds=None)
    result = curves.step_split(place_of(cell("vote"), whole, cell("compute")))
    assert result is not None
    bars = {trace.name: dict(zip(trace.y, trace.x, strict=True)) for trace in result.data if trace.type == "bar"}
    vote = sum(bars[part]["Distributed Lion vote"] for part in ("compute", "wait", "update"))
    assert vote == pytest.approx(cell("vote").step_seconds * 1e3)
    assert bars["not split"] == {"Lion Cub 4 bits": 2000.0}
    assert result.layout.shapes[0].x0 == pytest.approx(cell("compute").step_seconds * 1e3)
    assert curves.step_split(place_of(cell("vote", error="lost", step_seconds=0.0))) is None
    unknown = curves.step_split(place_of(cell("vote")))
    assert unknown is not None
    assert [trace.name for trace in unknown.data] == ["not split"], "without compute alone, nobody knows the waiting"


def test_a_step_is_shared_out_by_what_computing_alone_takes() -> None:
    ideal, vote = cell("compute", step_seconds=0.25, update_seconds=0.05), cell(step_seconds=0.5, update_seconds=0.05)
    (place,) = places_of([ideal, vote])
    found = place.split(vote)
    assert found is not None
    assert (found.compute, found.update) == (0.2, 0.05)
    assert found.wait == pytest.approx(0.25)
    for elsewhere in (replace(ideal, hosts=2), replace(ideal, seed=1), replace(ideal, run="another")):
        apart = places_of([elsewhere, vote])
        assert [place.split(vote) for place in apart] == [None, None]


def test_runs_at_one_place_are_told_apart_and_never_held_against_each_other() -> None:
    def made(run: str, commit: str) -> list[Cell]:
        about = {"date": "2026-11-16 10:00 UTC", "commit": commit}
        return [replace(each, run=run, machine=about) for each in (LION, CUB)]

    old, new = made("2026-11-16 10:00:00 UTC a", "c0ffee00"), made("2026-11-16 11:30:00 UTC b", "decaf000")
    slow = replace(old[0], step_seconds=100 * old[0].step_seconds)
    first, second = places_of([slow, old[1], *new])
    assert first.name.endswith("(2026-11-16 11:30:00, decaf00)")
    assert second.name.endswith("(2026-11-16 10:00:00, c0ffee0)")
    assert first.speedup(new[1]) == pytest.approx(LION.step_seconds / CUB.step_seconds)
    assert second.speedup(old[1]) == pytest.approx(100 * LION.step_seconds / CUB.step_seconds)
    assert table([first, second]).headings[:2] == ["method", "link"]
    assert "run" in table([first, second]).headings
    assert "Over 1 place and 2 measurements" in headline([*old, *new])
    for each in (curves.speedup_by_rate, curves.step_by_hosts):
        assert each(first, [first, second]) is None


def test_rates_and_hosts_are_plotted_where_there_are_several() -> None:
    places = places_of(cells(hosts=(2, 4), examples=(16, 128)))
    rates, hosts = curves.speedup_by_rate(places[0], places), curves.step_by_hosts(places[0], places)
    assert rates is not None
    assert hosts is not None
    assert list(rates.data[0].x) == [1e8, 3e8, 1e9]
    assert list(rates.data[0].y) == [1.0, 1.0, 1.0]
    assert rates.data[-1].name == "Compute alone"
    assert list(hosts.data[0].x) == [2, 4]
    alone = [places[0]]
    assert curves.speedup_by_rate(places[0], alone) is None
    assert curves.step_by_hosts(places[0], alone) is None


# ---- the page --------------------------------------------------------------------------------------------------------


def test_what_is_embedded_cannot_end_its_script() -> None:
    title = f"{EVIL}<!-- & \u2028\u2029 é"
    text = data([Plot(name="a", views=[figure(xaxis={"title": {"text": title}}, yaxis={}), None])])
    assert not set("<>\u2028\u2029") & set(text)
    (plot,) = json.loads(text)
    assert plot["views"][0]["layout"]["xaxis"]["title"]["text"] == title
    assert plot["views"][1] is None


def test_plotly_is_given_entities_that_it_knows() -> None:
    assert drawn("<b>\"a\" & 'b'</b>") == "&lt;b&gt;\"a\" &amp; 'b'&lt;/b&gt;"


def test_the_policy_allows_the_page_s_own_scripts_and_styles_only() -> None:
    html = page(places_of(cells(["100mbit"], examples=[16])))
    policy = unescape(re.search(r'Content-Security-Policy" content="(.*?)"', html)[1])  # type: ignore[index]
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    for directive, tag in (("script-src", r"<script>(.*?)</script>"), ("style-src", r"<style[^>]*>(.*?)</style>")):
        hashes = {b64encode(sha256(text.encode()).digest()).decode() for text in re.findall(tag, html, re.DOTALL)}
        assert set(directives.pop(directive).split()) == {f"'sha256-{each}'" for each in hashes}
    assert directives == {"default-src": "'none'", "img-src": "data:", "base-uri": "'none'", "form-action": "'none'"}
    assert html.index("Content-Security-Policy") < html.index("<style")


def test_every_record_is_in_the_page_and_every_row_links_to_its_own() -> None:
    places = places_of(cells(["100mbit", "1gbit"], examples=[16]))
    html = page(places)
    records = {
        number: unescape(text) for number, text in re.findall(r'<pre id="record-(\d+)">(.*?)</pre>', html, re.DOTALL)
    }
    rows = re.findall(r'<tr data-view="(\d+)"><td><a href="#record-(\d+)">(.*?)</a>.*?<td>(\w+)</td>', html)
    assert len(records) == len(rows) == 26
    for view, number, label, link in rows:
        record = json.loads(records[number])
        assert (record["label"], record["rates"][0]) == (label, link)
        assert places[int(view)].cells[0].link == link
        assert parse_cell(json.dumps({"kind": "cell"} | record)) in places[int(view)].cells


def test_nothing_in_a_record_becomes_markup() -> None:
    named: dict[str, Any] = dict.fromkeys(("label", "job", "unit", "examples_unit"), EVIL)
    failed: dict[str, Any] = dict.fromkeys(("method", "error", "command"), EVIL)
    bad = [replace(cell(method), **named) for method in ("ddp-lion", "cub-1", "compute")]
    bad.append(replace(cell("vote"), **named, **failed, rates=(EVIL,) * 4, machine={"cpu": EVIL}))
    html = page(places_of(bad))
    assert "<script>alert" not in html
    assert html.count("</script>") == 3  # plotly, the figures, page.js


def test_machines_and_seeds_are_named() -> None:
    assert sentence([LION]) == (
        "Measured on 2026-01-02 03:04 UTC: A processor, 2 cores, torch 2.13.0, commit 0123456789ab. Seed 0."
    )
    text = sentence(
        [LION, replace(LION, seed=2, machine={"cpu": "B", "date": "2026-02-02"}), replace(LION, machine={})]
    )
    assert text == (
        "Measured from 2026-01-02 03:04 UTC to 2026-02-02: A processor, 2 cores, torch 2.13.0, commit 0123456789ab; B; "
        "a machine that the records do not name. Figures from different ones must not be compared. Seeds 0, 2."
    )


# ---- from files to files ---------------------------------------------------------------------------------------------


def test_the_command_prints_and_writes_what_the_records_say(tmp_path: Path) -> None:
    first = write(tmp_path / "a.jsonl", [LION, replace(CUB, label="before")])
    second = write(tmp_path / "b.jsonl", [CUB])
    docs = tmp_path / "docs.md"
    docs.write_text(f"before\n{MARKERS.begin}\nold\n{MARKERS.end}\nafter\n")
    out = tmp_path / "new" / "report.html"
    result = CliRunner().invoke(app, ["report", str(first), str(second), "--out", str(out), "--docs", str(docs)])
    assert result.exit_code == 0, result.output
    printed = " ".join(result.stdout.split())
    assert headline([LION, CUB]) in printed
    assert "before" not in printed
    assert headline([LION, CUB]) in out.read_text()
    text = docs.read_text()
    assert text.startswith(f"before\n{MARKERS.begin}\n{headline([LION, CUB])}\n\nMeasured on ")
    assert "```sh\nlioncub compare --hosts 4\n```" in text
    assert "| Lion Cub 4 bits | 100mbit | 4 | 128 | 2,000 (1,800–2,400) | 5x |" in text
    assert text.endswith(f"{MARKERS.end}\nafter\n")
    assert "old" not in text


def test_the_page_goes_beside_the_first_records(tmp_path: Path) -> None:
    records = write(tmp_path / "records.jsonl", [LION, CUB])
    assert run_report(ReportConfig(records=(records,)), Console(file=io.StringIO())) == tmp_path / "report.html"
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


def test_markdown_is_escaped() -> None:
    text = markdown([place_of(replace(LION, label="<b>"), replace(CUB, label="a|<i>"))])
    assert "<b>" not in text
    assert "| a\\|&lt;i&gt; |" in text


def test_prose_and_rows_of_markdown_stay_on_their_lines() -> None:
    named: dict[str, Any] = {"label": "a\r\n```\nb", "job": "gpt\r# c"}
    text = markdown(places_of([replace(LION, **named), replace(CUB, **named)]))
    assert text.count("\n```") == 2
    assert "\r" not in text


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("```\n<script>", "````sh\n``` <script>\n````"),
        ("a\r````\x1b[2Jb", "`````sh\na ````\N{REPLACEMENT CHARACTER}[2Jb\n`````"),
        ("x\n<!-- compare:begin -->", "```sh\nx <! -- compare:begin -->\n```"),
    ],
)
def test_a_command_stays_in_its_block_and_is_no_marker(tmp_path: Path, command: str, shown: str) -> None:
    docs = tmp_path / "docs.md"
    docs.write_text(f"{MARKERS.begin}\n{MARKERS.end}\n")
    records = write(tmp_path / "records.jsonl", [replace(each, command=command) for each in (LION, CUB)])
    for _ in range(2):
        run_report(ReportConfig(records=(records,), docs=docs), Console(file=io.StringIO()))
        assert f"\n\n{shown}\n\n" in docs.read_text()


@pytest.mark.parametrize("text", ["\x1b[2J\x9b1mred", "\x1b]0;title\x07", "\u202eback", "a\rb\nc", "[/b][red]"])
def test_a_terminal_obeys_nothing_in_a_record(tmp_path: Path, text: str) -> None:
    named: dict[str, Any] = dict.fromkeys(("label", "job", "unit", "examples_unit", "command"), text)
    members = [replace(each, **named, rates=(text,)) for each in (LION, CUB, cell("vote", error=text))]
    console = Console(file=io.StringIO(), width=200)
    run_report(ReportConfig(records=(write(tmp_path / "records.jsonl", members),)), console)
    assert isinstance(console.file, io.StringIO)
    assert not set("\x1b\x9b\x07\r\u202e") & set(console.file.getvalue())
    assert console.file.getvalue().count("[red]") >= text.count("[red]")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"records": ()}, "records must name at least one file"),
        ({"records": (Path("no/such.jsonl"),)}, "there is no file no/such.jsonl"),
        (
            {"records": (Path(__file__),), "out": Path(__file__).parent},
            "out must be the page's file, but .* is a folder",
        ),
        ({"records": (Path(__file__),), "docs": Path(__file__)}, "docs must have one line <!-- compare:begin -->"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ReportConfig(**settings)


def broken(**given: Any) -> str:
    return json.dumps(json.loads(LION.to_json()) | given)


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"kind": "run"}',
        broken(hosts="four"),
        broken(label=None),
        broken(step_seconds=float("nan")),
        broken(points=[{"step": 1}]),
        broken(points=[{"step": 1, "seconds": "x", "bytes_sent": 0}]),
        broken(step_seconds_quartiles=["a", "b"]),
        broken(machine=[]),
        broken(points=[{"step": 1, "seconds": None, "bytes_sent": 0}]),
        LION.to_json().replace('"step_seconds": 10.0', '"step_seconds": 1e999'),
        broken(step_seconds_quartiles=[1]),
        broken(step_seconds=1e308, bytes_sent=1e308),
        broken(step_seconds=5e-324),
        broken(step_seconds=-1),
        broken(step_seconds=True),
        broken(points=[{"step": 1, "seconds": 10**400, "bytes_sent": 0}]),
        broken(points=[{"step": 1, "seconds": 1, "bytes_sent": 0, "validation_loss": 10**400}]),
        broken(machine={"date": "\ud800"}),
        broken(machine={"cpu": ["a list"]}),
        broken(settings={"\udfff": 1}),
        broken(settings={"seconds": {}}),
        broken(data="\ud800"),
        broken(hosts=True),
        broken(hosts=0),
        broken(parameters=0),
        broken(seed=-1),
        broken(rates="100mbit"),
        broken(lr=None),
        broken(weight_decay="x"),
        broken(update_seconds=-1),
        "[" * 100_000,
        '{"kind": "cell", "machine": ' + "[" * 100_000,
    ],
)
def test_a_broken_line_is_named_with_its_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(f"{LION.to_json()}\n\n{line}\n{CUB.to_json()}\n")
    with pytest.raises(ReportError, match=r"records.jsonl, line 3: not a record of a comparison: .*; remove the line"):
        read_records([path])


def test_records_without_a_finished_cell_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(LION.to_json()[:50])  # cut short by a crash
    with pytest.raises(ReportError, match=r"no cell has been finished yet in .*records.jsonl: run `lioncub compare`"):
        read_records([path])


def test_what_cannot_be_read_or_written_is_an_error_of_one_line(tmp_path: Path) -> None:
    records = write(tmp_path / "records.jsonl", [LION])
    with pytest.raises(ReportError, match=r"cannot be written: .*; choose another --out"):
        run_report(ReportConfig(records=(records,), out=Path("/proc/nowhere/a.html")), Console(file=io.StringIO()))
    with pytest.raises(ReportError, match="cannot be read"):
        read_records([tmp_path])
    (tmp_path / "binary").write_bytes(b"\xff\xfe\n")
    with pytest.raises(ReportError, match="binary is not text"):
        read_records([tmp_path / "binary"])
