"""The pages in a real browser: what they draw, what they refuse to run, how they fit."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from lioncub.tools.bench import run as bench_run
from lioncub.tools.bench.config import BenchConfig
from lioncub.tools.bench.page import page as bench_page
from lioncub.tools.bench.tables import tables as bench_tables
from lioncub.tools.compare.records import Cell
from lioncub.tools.report.comparison import places_of
from lioncub.tools.report.comparison_page import page
from lioncub.tools.report.headline import headline
from lioncub.tools.reporting.pictures import draw
from lioncub.tools.study.methods import METHODS as METHODS_OF_STUDY
from lioncub.tools.study.page import page as study_page
from lioncub.tools.study.plan import remaining
from lioncub.tools.study.plots import PLOTS as STUDY_PLOTS
from lioncub.tools.study.plots import pictures
from lioncub.tools.study.presets import Preset
from lioncub.tools.study.records import Run
from tests.support.chromium import Chromium, Tab, find_chromium, launched
from tests.support.comparison_records import METHODS, cell, cells, curve
from tests.support.study_records import EXPERIMENT, SETTINGS, made
from tests.tools.bench.test_bench import made_up

STUDY = Preset(experiments={"e": replace(EXPERIMENT, pictures=("bits",))}, settings=SETTINGS)
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
NUM_TRAINED = len(METHODS) - 1

# What is drawn, by plot: lines and bars; a hidden plot has none.
DRAWN = """Object.fromEntries(Array.from(document.querySelectorAll(".plot"), (plot) => {
  const marks = plot.querySelectorAll(".scatterlayer .trace path.js-line, .bars path");
  return [plot.id, plot.parentElement.hidden ? 0 : marks.length];
}))"""
WIDTHS = """Array.from(document.querySelectorAll(".plot"), (plot) =>
  [plot.clientWidth, plot.querySelector(".main-svg").clientWidth])"""
COLOURS = """[getComputedStyle(document.querySelector(".xtick text")).fill,
  getComputedStyle(document.body).backgroundColor]"""
# The labels of an axis that overlap the one before: beside or below each other, rotated ones by their lines' distance.
CROWDED = """["x", "y"].flatMap((axis) => Array.from(document.querySelectorAll(".plot")).flatMap((plot) => {
  const labels = Array.from(plot.querySelectorAll(`.${axis}tick text`)).filter((label) => label.textContent.trim());
  const boxes = labels.map((label) => ({
    text: label.textContent,
    rotated: /rotate\\((?!0)/.test(label.getAttribute("transform")),
    ...label.getBoundingClientRect().toJSON(),
  })).sort((a, b) => axis === "x" ? a.left - b.left : a.top - b.top);
  return boxes.slice(1).filter((box, index) => {
    const last = boxes[index];
    return axis === "y" ? box.top < last.bottom - 4 : box.rotated ? box.left < last.left + 10 : box.left < last.right;
  }).map((box) => `${plot.id} ${axis}: ${box.text}`);
}))"""
SHOWN_ROWS = """Array.from(document.querySelectorAll("table tr:not([hidden])"), (row) =>
  Array.from(row.cells, (cell) => cell.textContent)).slice(1)"""
LEAD = """Array.from(document.querySelectorAll("p.lead:not([hidden])"), (lead) => lead.textContent)"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    program = find_chromium()
    if program is None:
        if os.environ.get("LIONCUB_REQUIRE_BROWSER"):
            pytest.fail("LIONCUB_REQUIRE_BROWSER is set, but there is no chromium on PATH")
        pytest.skip("no chromium on PATH: install Debian's package chromium to test the pages")
    with launched(program) as browser:
        yield browser


@dataclass(frozen=True)
class Pages:
    """Files of the pages, by name."""

    folder: Path

    def write(self, name: str, html: str) -> Path:
        path = self.folder / f"{name}.html"
        path.write_text(html, encoding="utf-8")
        return path

    def comparison(self, name: str, members: list[Cell]) -> Path:
        return self.write(name, page(places_of(members)))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    return Pages(tmp_path_factory.mktemp("pages"))


@pytest.fixture(scope="module")
def full(pages: Pages) -> Path:
    """Two numbers of hosts, three links, three token counts, every method; one cell failed."""
    every = cells(hosts=(2, 4))
    lost = replace(every[0], error="worker 1 was lost", points=(), step_seconds=0.0)
    return pages.comparison("full", [lost, *every[1:]])


def study_runs() -> list[Run]:
    todo, _ = remaining([EXPERIMENT], STUDY, [])
    return [
        replace(made(2.0 + number / 10, method=spec.method), spec=spec, label=METHODS_OF_STUDY[spec.method].label)
        for number, spec in enumerate(todo)
    ]


def choose(tab: Tab, index: int) -> None:
    select = "document.getElementById('view')"
    tab.evaluate(f"{select}.selectedIndex = {index}; {select}.dispatchEvent(new Event('change'))")


def overflow(tab: Tab) -> int:
    width: int = tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return width


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_comparison_is_drawn_in_any_light_on_any_width(
    chromium: Chromium, full: Path, width: int, dark: bool
) -> None:
    tab = chromium.open(full, width=width, dark=dark)
    assert tab.errors() == []
    drawn = tab.evaluate(DRAWN)
    assert drawn == {
        "time": NUM_TRAINED - 1,
        "bytes": NUM_TRAINED - 1,
        "steps": NUM_TRAINED - 1,
        "split": 3 * (NUM_TRAINED - 1),
        "rates": len(METHODS),
        "hosts": len(METHODS),
    }
    assert overflow(tab) == 0
    lefts = tab.evaluate("Array.from(document.querySelectorAll('.plots figure'), (each) => each.offsetLeft)")
    assert len(set(lefts)) == (1 if width == 390 else 2)
    assert all(own == inside for own, inside in tab.evaluate(WIDTHS))
    ink, paper = tab.evaluate(COLOURS)
    assert (ink, paper) == (
        ("rgb(216, 222, 228)", "rgb(20, 24, 29)") if dark else ("rgb(31, 35, 40)", "rgb(255, 255, 255)")
    )
    tab.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_no_label_of_an_axis_lies_on_another(chromium: Chromium, full: Path, pages: Pages, width: int) -> None:
    members = []
    for seed, factor in enumerate((1.1, 2, 5, 8.5, 12, 20, 50, 100, 1e3, 1e5)):  # how far the curves' ends are apart
        far: dict[str, Any] = {
            "points": tuple(curve(METHODS["ddp-lion"], 0.3 * factor, 1e6 * factor, 512)),
            "step_seconds": factor,
        }
        near: dict[str, Any] = {"points": tuple(curve(METHODS["cub-4"], 0.3, 1e6, 512))}
        for hosts in (2, 4):
            members += [cell("ddp-lion", seed=seed, hosts=hosts, **far), cell("cub-4", seed=seed, hosts=hosts, **near)]
    for path, places in ((full, cells(hosts=(2, 4))), (pages.comparison("apart", members), members)):
        tab = chromium.open(path, width=width)
        for view, place in enumerate(places_of(places)):
            choose(tab, view)
            assert tab.evaluate(CROWDED) == [], place.name
        tab.close()


def test_choosing_a_place_redraws_its_plots_and_filters_the_table(chromium: Chromium, full: Path) -> None:
    every = cells(hosts=(2, 4))
    places = places_of([replace(every[0], error="worker 1 was lost", points=(), step_seconds=0.0), *every[1:]])
    tab = chromium.open(full)
    names = tab.evaluate("Array.from(document.getElementById('view').options, (each) => each.textContent)")
    assert names == [place.name for place in places]
    for view in (0, len(places) - 1, 0):
        choose(tab, view)
        place = places[view]
        rows = tab.evaluate(SHOWN_ROWS)
        assert len(rows) == len(METHODS)
        assert [row[1:4] for row in rows] == [
            [place.cells[0].link, str(place.cells[0].hosts), str(place.cells[0].examples)]
        ] * len(rows)
        assert rows[0][0] == ("DDP Lion" if place.cell("ddp-lion") else "DDP Lionfailed: worker 1 was lost")
        assert tab.evaluate(LEAD) == [headline(place.cells)]
        assert tab.evaluate(DRAWN)["time"] == len(place.trained)
        longest = tab.evaluate("Math.max(...document.getElementById('time').data.flatMap((trace) => trace.x))")
        assert longest == pytest.approx(max(each.points[-1].seconds for each in place.trained))
    assert tab.errors() == []
    tab.close()


def test_a_plot_that_a_place_does_not_have_is_hidden(chromium: Chromium, pages: Pages) -> None:
    members = [*cells(["100mbit", "1gbit"], examples=(128,)), *cells(["100mbit"], hosts=(2,), examples=(16,))]
    tab = chromium.open(pages.comparison("some", members))
    assert tab.evaluate(DRAWN)["rates"] == 0  # 2 hosts, 16 tokens: one link only
    choose(tab, 1)
    assert tab.evaluate(DRAWN)["rates"] == len(METHODS)
    assert tab.evaluate("document.querySelector('#hosts')") is None
    assert tab.errors() == []
    tab.close()


def test_a_method_hidden_by_its_reader_stays_hidden_at_the_next_place(chromium: Chromium, full: Path) -> None:
    tab = chromium.open(full)
    choose(tab, 1)
    before = tab.evaluate(DRAWN)["time"]
    entry = "document.querySelectorAll('#time .legendtoggle')[1].getBoundingClientRect()"
    x, y = tab.evaluate(f"(({{x, y}}) => [x + 5, y + 5])({entry})")
    tab.page.mouse.click(x, y)
    tab.page.wait_for_timeout(1000)  # a second click would isolate the method
    assert tab.evaluate(DRAWN)["time"] == before - 1
    choose(tab, 2)
    assert tab.evaluate(DRAWN)["time"] == before - 1
    tab.close()


def test_hovering_shows_a_point_s_figures(chromium: Chromium, full: Path) -> None:
    tab = chromium.open(full)
    x, y = tab.evaluate(
        "(({x, y}) => [x, y])(document.querySelector('#time .scatterlayer .point').getBoundingClientRect())"
    )
    for shift in (0, 2):
        tab.page.mouse.move(x + shift, y + 2)
    tab.page.wait_for_timeout(300)
    assert " after " in tab.evaluate("document.querySelector('#time .hoverlayer').textContent")
    assert tab.errors() == []
    tab.close()


def test_a_row_s_link_unfolds_its_record(chromium: Chromium, full: Path) -> None:
    tab = chromium.open(full)
    assert tab.evaluate("document.querySelectorAll('details[open]').length") == 0
    tab.evaluate("document.querySelector('td a[href=\"#record-3\"]').click()")
    tab.page.wait_for_timeout(100)
    assert tab.evaluate("document.querySelectorAll('details[open]').length") == 2
    text = tab.evaluate("document.querySelector(':target').textContent")
    assert f'"method": "{list(METHODS)[3]}"' in text
    assert -1 < tab.evaluate("document.querySelector(':target').getBoundingClientRect().top") < 844
    tab.close()
    straight = chromium.open(full, fragment="#record-5")
    assert straight.evaluate("document.querySelectorAll('details[open]').length") == 2
    straight.close()


def test_names_that_look_like_scripts_are_only_shown(chromium: Chromium, pages: Pages) -> None:
    named: dict[str, Any] = {"label": EVIL, "job": EVIL, "unit": EVIL, "examples_unit": EVIL, "command": EVIL}
    members = [
        replace(cell(method, link=link), **named) for method in ("ddp-lion", "cub-4") for link in ("100mbit", "1gbit")
    ]
    members.append(replace(cell("vote"), **named, method=EVIL, error=EVIL, rates=(EVIL,) * 4, machine={"cpu": EVIL}))
    tab = chromium.open(pages.comparison("evil", members), width=390)
    for view in range(3):
        choose(tab, view)
        assert tab.evaluate("alerts") == []
        assert tab.errors() == []
        assert overflow(tab) == 0
    choose(tab, 1)
    assert tab.evaluate("document.querySelectorAll('script').length") == 3
    assert tab.evaluate("document.querySelectorAll('img').length") == 0
    assert tab.evaluate("document.querySelector('#time .legendtext').textContent") == EVIL
    assert tab.evaluate("document.querySelector('#split .ytick text').textContent").strip() == EVIL
    tab.close()


def test_what_is_not_the_page_s_own_is_stopped(chromium: Chromium, pages: Pages) -> None:
    html = page(places_of([cell("vote"), cell("ddp-lion")]))
    injected = "<script>alert(1)</script><img src=x onerror='alert(2)'><style>body { color: red }</style>"
    tab = chromium.open(pages.write("injected", html.replace("<h1>", f"{injected}<h1>")))
    assert tab.evaluate("alerts") == []
    directives = {text.split()[0] for text in tab.evaluate("violations")}
    assert directives == {"script-src-elem", "script-src-attr", "img-src", "style-src-elem"}
    assert tab.evaluate(DRAWN)["time"] == 2
    tab.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_benchmark_s_page_is_drawn(chromium: Chromium, pages: Pages, width: int) -> None:
    records = made_up()
    about = bench_run.describe(BenchConfig())
    path = pages.write("bench", bench_page(records, bench_tables(records), about))
    tab = chromium.open(path, width=width, dark=True)
    assert tab.errors() == []
    drawn = tab.evaluate(DRAWN)
    assert len(drawn) == 3
    for plot, model in zip(drawn.values(), ("", "ResNet-50", "GPT-2 small"), strict=True):
        assert plot == sum(record.model == model and record.group in ("kernel", "step") for record in records)
    assert overflow(tab) == 0
    tab.close()


def test_the_study_s_page_is_drawn(chromium: Chromium, pages: Pages) -> None:
    path = pages.write("study", study_page(STUDY, ["e"], study_runs()))
    tab = chromium.open(path, dark=True)
    assert tab.errors() == []
    drawn = tab.evaluate(
        "Object.fromEntries(Array.from(document.querySelectorAll('.plot'), (plot) => [plot.id, "
        "plot.parentElement.hidden ? 0 : plot.querySelectorAll('.scatterlayer .trace').length]))"
    )
    num_methods = len(EXPERIMENT.methods)
    assert set(drawn) == set(STUDY_PLOTS)
    assert (drawn["bits"], drawn["agreement"], drawn["workers"]) == (num_methods, 0, num_methods)
    assert drawn["losses"] == 2 * num_methods, "a line and a band"
    tab.close()


@pytest.mark.usefixtures("chromium")
def test_pictures_of_documents_are_drawn(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    (picture,) = pictures(STUDY, ["e"], study_runs(), prefix="p")
    assert draw([picture], document) == [picture]
    svg = ElementTree.parse(picture.path(document)).getroot()
    texts = {text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")}
    assert {"vote", "global Lion", "bits per byte"} <= texts
    assert picture.is_current(document)
    assert draw([picture], document) == []
