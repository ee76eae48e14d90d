"""What a study's readers look at: figures, pictures, what it takes, tables and their statistics."""

from __future__ import annotations

import io
import re
import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from rich.console import Console

from lioncub.errors import ConfigError
from lioncub.tools.jobs.catalogue import JOBS
from lioncub.tools.reporting.pictures import Picture, draw
from lioncub.tools.study.config import StudyConfig
from lioncub.tools.study.effort import cost_table, described, settings_table, tasks_table
from lioncub.tools.study.kinds import kind
from lioncub.tools.study.layers import agreement_table, divergence_table
from lioncub.tools.study.page import page
from lioncub.tools.study.plan import remaining
from lioncub.tools.study.plots import (
    PLOTS,
    loss_by_step,
    pictures,
    quality_by_agreement,
    quality_by_bits,
    quality_by_workers,
)
from lioncub.tools.study.presets import EXPERIMENTS, PEOPLE, PRESETS, RIVALS, Experiment, Preset
from lioncub.tools.study.records import Run, read_runs
from lioncub.tools.study.results import Gain, Sample, of_experiment, samples
from lioncub.tools.study.run import run_study
from lioncub.tools.study.search import search
from lioncub.tools.study.settings import Setting
from lioncub.tools.study.tables import comparison, memory_table, table, tables
from lioncub.tools.study.tasks import TASKS
from tests.support.paths import DOCS
from tests.support.study_records import EXPERIMENT, SETTINGS, made


def shown(figure: go.Figure | None) -> go.Figure:
    assert figure is not None
    return figure


# ---- figures ---------------------------------------------------------------------------------------------------------


def test_every_method_of_the_trade_off_looks_different() -> None:
    methods = (*PEOPLE, *RIVALS)
    found = samples(made(2.0 + number / 10, method=method) for number, method in enumerate(methods))
    figure = shown(quality_by_bits(found))
    looks = {(trace.marker.color, trace.marker.symbol) for trace in figure.data}
    assert len(looks) == len(figure.data) == len(methods)
    losses = shown(loss_by_step(found))
    assert len({(trace.line.color, trace.line.dash) for trace in losses.data}) == len(methods)


def test_methods_stand_in_the_order_of_their_quality_and_full_precision_is_a_line() -> None:
    found = samples([made(2.5, method="vote"), made(2.0, method="lion"), made(3.0, method="dgc")])
    figure = shown(quality_by_bits(found))
    assert [trace.name for trace in figure.data] == ["global Lion", "vote", "DGC, 4%"]
    assert [shape.y0 for shape in figure.layout.shapes] == [2.0]
    images = samples([made(40.0, task="resnet"), made(41.0, task="resnet", method="lion")])
    assert [trace.name for trace in shown(quality_by_bits(images)).data] == ["global Lion", "vote"]


def test_methods_that_differ_in_bits_alone_are_joined() -> None:
    found = samples(
        replace(made(method=method), bits_up=bits)
        for method, bits in (("midtread-4", 4.0), ("midtread-2", 2.0), ("vote", 1.0))
    )
    joined, vote = shown(quality_by_bits(found)).data
    assert (joined.name, list(joined.x)) == ("midtread", [3.0, 5.0])
    assert list(joined.text) == ["2 bits, midtread", "4 bits, midtread"]
    assert (vote.name, list(vote.x)) == ("vote", [2.0])


def test_one_method_that_fails_does_not_hide_the_others() -> None:
    methods = ("vote", "midtread-2", "midtread-4", "midtread-8", "cub-2", "cub-3", "cub-4", "float-4", "mean")
    qualities = (3.14, 3.13, 3.12, 3.11, 3.13, 3.12, 3.11, 3.10, 4.5)
    found = samples(made(value, method=method) for value, method in zip(qualities, methods, strict=True))
    low, high = shown(quality_by_bits(found)).layout.yaxis.range
    assert low < 3.10
    assert 3.14 < high < 3.3
    assert low - 0.01 < min(qualities) - 0.01 * (high - low)


def test_what_is_outside_the_frame_is_named() -> None:
    near = ("midtread-2", "midtread-4", "midtread-8", "cub-2", "cub-4")
    found = samples([*(made(3.0 + k / 100, method=m) for k, m in enumerate(near)), made(4.5, method="mean")])
    figure = shown(quality_by_bits(found))
    assert [note.text for note in figure.layout.annotations] == ["outside: mean of signs"]
    assert not shown(quality_by_bits(found[:5])).layout.annotations


def test_one_point_does_not_stand_for_several_rates_or_mixes() -> None:
    several = samples(made(3.0, lr=lr, workers=workers) for lr in (1e-3, 3e-3) for workers in (4, 8))
    assert [kind.draw(several) for kind in PLOTS.values()] == [None] * len(PLOTS)
    runs = [made(3.0 + k, method=m, task="resnet", skew=s) for k, s in enumerate((None, 0.1)) for m in ("vote", "lion")]
    figure = shown(quality_by_bits(samples(runs)))
    assert [list(trace.y) for trace in figure.data] == [[3.0], [3.0]]


def test_agreement_is_shown_for_those_that_have_it() -> None:
    looked = {"a": 0.5, "b": 1.0}
    found = samples([made(agreement=looked), made(method="midtread-2", agreement=looked), made(method="dgc")])
    figure = shown(quality_by_agreement(found))
    assert {trace.name: list(trace.x) for trace in figure.data} == {"vote": [75.0], "2 bits, midtread": [75.0]}
    assert quality_by_agreement(samples([made(agreement=looked), made(method="dgc")])) is None


def test_quality_by_workers_needs_several_numbers_of_them() -> None:
    assert quality_by_workers(samples([made(), made(method="lion")])) is None
    (line,) = shown(quality_by_workers(samples([made(3.0, workers=8), made(4.0, workers=4)]))).data
    assert (list(line.x), list(line.y)) == ([4, 8], [4.0, 3.0])


def test_loss_curves_have_a_band_and_leave_the_first_steps_outside() -> None:
    runs = [replace(made(seed=seed), train_losses=(90.0, *(3.0 - k / 10 + seed for k in range(19)))) for seed in (0, 1)]
    figure = shown(loss_by_step(samples(runs)))
    band, mean = figure.data
    assert list(mean.y)[1:3] == [3.5, 3.4]
    assert max(band.y) == 90.0
    assert figure.layout.yaxis.range[1] < 4.0
    assert loss_by_step(samples([made(None)])) is None


# ---- pictures --------------------------------------------------------------------------------------------------------


def picture(height: float = 1.0) -> Picture:
    return Picture(name="a", caption="C", figure=go.Figure(go.Scatter(x=[1, 2], y=[1.0, height])))


def test_a_picture_is_current_as_long_as_its_figure_is_the_same(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    assert picture().to_markdown() == "![C](pictures/a.svg)\n"
    assert not picture().is_current(document)
    path = picture().path(document)
    path.parent.mkdir()
    path.write_text("<svg/>" + picture().stamp)
    assert picture().is_current(document)
    assert not picture(2.0).is_current(document)
    assert draw([picture()], document) == []


def test_without_what_draws_them_pictures_are_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kaleido", None)
    with pytest.raises(ConfigError, match=r"1 pictures of .*page.md are to be drawn, .*lioncub\[docs\]"):
        draw([picture()], tmp_path / "page.md")


def test_experiments_name_plots_that_there_are() -> None:
    chosen = [name for preset in PRESETS.values() for each in preset.experiments.values() for name in each.pictures]
    assert set(chosen) <= set(PLOTS)


@pytest.mark.parametrize("preset", ["quick", "full"])
def test_the_published_pictures_are_of_the_published_records(preset: str) -> None:
    runs = read_runs([DOCS / "records" / "study" / f"{preset}.jsonl"])
    published = pictures(PRESETS[preset], list(PRESETS[preset].experiments), runs, prefix=f"study-{preset}")
    document = DOCS / "convergence.md"
    assert [each.name for each in published if not each.is_current(document)] == []
    known = {each.path(document) for each in published}
    assert set((DOCS / "pictures").glob(f"study-{preset}-*")) == known
    text = document.read_text(encoding="utf-8")
    assert all(each.to_markdown() in text for each in published)


@pytest.mark.parametrize("preset", ["quick", "full"])
def test_the_published_figures_are_of_one_kind_of_machine(preset: str) -> None:
    """Another processor rounds differently, and that alone moves a run by more than methods differ."""
    runs = read_runs([DOCS / "records" / "study" / f"{preset}.jsonl"])
    assert len({(run.machine["cpu"], run.machine["torch"]) for run in runs}) == 1


def test_the_quick_set_has_the_order_that_the_full_one_is_sure_of() -> None:
    found = {}
    for name in ("quick", "full"):
        preset = PRESETS[name]
        runs = read_runs([DOCS / "records" / "study" / f"{name}.jsonl"])
        samples = of_experiment(preset.experiments["tradeoff"], preset, runs)
        found[name] = {sample.one.spec.method: sample for sample in samples if sample.one.spec.task == "gpt"}
    both = [method for method in found["quick"] if method in found["full"]]
    assert set(both) >= set(PEOPLE)
    for one, other in combinations(both, 2):
        full, quick = (found[name][one].against(found[name][other]) for name in ("full", "quick"))
        assert full is not None
        assert full.error is not None
        assert quick is not None
        if abs(full.mean) > 2 * full.error and full.is_certain:
            assert full.mean * quick.mean > 0, (one, other, full, quick)


def test_the_quick_set_takes_what_the_full_ones_search_found() -> None:
    done = {run.spec.key: run for run in read_runs([DOCS / "records" / "study" / "full.jsonl"])}
    found = {method: search("gpt", method, done)[1] for method in PRESETS["quick"].settings}
    known = {method: setting for method, setting in found.items() if setting is not None}
    assert set(known) >= set(PEOPLE)
    assert {method: PRESETS["quick"].settings[method] for method in known} == known


BLOCK = re.compile(r"<!-- study:[\w:-]+:begin -->(.*?)<!-- study:[\w:-]+:end -->", re.DOTALL)
DECIMAL = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.]*\d)")
NOT_PROSE = re.compile(r"```.*?```|`[^`]*`|\]\([^)]*\)", re.DOTALL)


def stray_decimals(section: str) -> list[str]:
    """Numbers with a decimal point in a section's prose that none of its tables has, rounded as they are."""
    tables = [line for block in BLOCK.findall(section) for line in block.splitlines() if line.startswith("|")]
    known = [float(number) for line in tables for number in DECIMAL.findall(line.replace("+", ""))]
    prose = NOT_PROSE.sub("", BLOCK.sub("", section))
    return [
        number
        for number in DECIMAL.findall(prose)
        if not any(abs(value - float(number)) <= 0.51 * 10 ** -len(number.split(".")[1]) for value in known)
    ]


def test_stray_decimals_are_found() -> None:
    table = "<!-- study:a:b:begin -->\n| -3.139 ± 0.022 |\n<!-- study:a:b:end -->\n"
    assert stray_decimals(table + "It ends at 3.14, or 3.139 ± 0.02, `7.5` [there](a-1.5.md).") == []
    assert stray_decimals(table + "It ends at 3.15, or 3.138.") == ["3.15", "3.138"]


def test_what_the_text_says_of_the_figures_is_in_the_tables() -> None:
    """Prose is written by hand: where records change, it must be read again."""
    _, *sections = re.split(r"(?m)^## ", (DOCS / "convergence.md").read_text(encoding="utf-8"))
    stray = {section.splitlines()[0]: stray_decimals(section) for section in sections}
    assert len(stray) > 8
    assert {title: numbers for title, numbers in stray.items() if numbers} == {}


# ---- what it takes ---------------------------------------------------------------------------------------------------


def test_a_run_of_several_experiments_is_counted_once() -> None:
    more = Experiment(question="?", methods=("vote", "mean"), tasks=("gpt",), workers=(4,), seeds=(0,))
    preset = Preset(experiments={"first": EXPERIMENT, "second": more}, settings=SETTINGS)
    todo, _ = remaining([EXPERIMENT, more], preset, [])
    hour = [replace(made(), spec=spec, seconds=3600.0) for spec in todo if spec.workers == 4]
    rows = cost_table(preset, ["first", "second"], hour).rows
    assert [row[:4] for row in rows] == [
        ["first", "4", "4", "4.00"],
        ["second", "1", "0", "1.00"],
        ["all", "5", "4", "5.00"],
    ]
    assert [row[4] for row in rows] == ["12.00", "1.00", "13.00"]  # eight workers see twice as much


def test_what_was_found_is_shown_in_a_few_words() -> None:
    preset = Preset(experiments={"e": EXPERIMENT}, settings={"vote": Setting(1e-3)})
    assert settings_table(preset, ["e"], []) is None
    done: dict[str, Run] = {}
    while (found := search("gpt", "lion", done))[1] is None:
        done |= {s.key: replace(made(end=abs(s.lr - 1e-3) - s.rise), spec=s) for s in found[0] if s.key not in done}
    shown = settings_table(preset, ["e"], list(done.values()))
    assert shown is not None
    assert shown.rows == [["global Lion", "0.001, rise 25%"]]
    assert described(Setting(0.01, 1 / 3, "0.95")) == "0.01, decay × 0.33, β2 0.95"


def test_the_tasks_are_described_by_what_they_are() -> None:
    (row,) = tasks_table(["resnet"]).rows
    task = TASKS["resnet"]
    assert row[:3] == ["resnet", task.job, str(task.steps)]
    assert row[3:6] == [f"{task.examples} images", f"{8 * task.examples * task.steps:,} images", "2,000 images"]


def test_the_full_set_fits_into_twelve_hours_of_two_cores() -> None:
    runs = read_runs([DOCS / "records" / "study" / "full.jsonl"])
    *_, total = cost_table(PRESETS["full"], list(EXPERIMENTS), runs).rows
    assert float(total[4]) < 24


# ---- tables and statistics -------------------------------------------------------------------------------------------


def test_means_and_standard_errors_over_seeds() -> None:
    (sample,) = samples([made(2.0, seed=0), made(4.0, seed=1), made(3.0, seed=2)])
    assert sample.quality == 3.0
    assert sample.error == pytest.approx(1 / 3**0.5)
    assert samples([made(2.0)])[0].error is None
    assert Sample((made(2.0), made(None, seed=1))).quality is None


def test_methods_are_compared_seed_by_seed() -> None:
    (better,) = samples([made(q, seed=s) for s, q in enumerate((2.0, 7.1, 4.0))])
    (worse,) = samples([made(q, seed=s, method="mean") for s, q in enumerate((3.0, 8.3))])
    gain, loss = better.against(worse), worse.against(better)
    assert gain is not None
    assert loss is not None
    assert gain.mean == -loss.mean == pytest.approx(1.1)  # fewer bits per byte are better
    assert gain.error == loss.error == pytest.approx(0.1), "what seeds have in common is no error"
    assert gain.is_certain is loss.is_certain is False, "two seeds: 11 standard errors are not 12.7"
    assert Gain(-1.0, 0.2, 3).is_certain is True
    assert Gain(1.0, 0.25, 3).is_certain is False
    assert Gain(1.0, 0.25, 40).is_certain is True
    single = Sample((made(2.5, seed=1),)).against(worse)
    assert single is not None
    assert single.mean == pytest.approx(5.8)
    assert single.is_certain is None
    assert Sample((made(2.5, seed=9),)).against(worse) is None
    assert Sample((made(None, seed=1),)).against(worse) is None


def test_tables_have_a_row_for_each_method_and_a_column_for_each_condition() -> None:
    found = samples([made(2.0), made(2.2, seed=1), made(2.5, workers=8), made(None, method="mean")])
    grid = table("T", found)
    assert grid.headings == ["method", "bits up", "bits down", "4 workers", "8 workers"]
    assert grid.rows == [
        ["vote", "1.00", "1.00", "2.100 ± 0.100", "2.500 [1]"],
        ["mean of signs", "1.00", "1.00", "not finite", "–"],
    ]


def seeds(qualities: tuple[float, ...], **given: Any) -> list[Run]:
    return [made(quality, seed=seed, **given) for seed, quality in enumerate(qualities)]


def test_memory_is_told_by_what_a_worker_adds() -> None:
    few, many = made(workers=8, peak_bytes=300 << 20), made(workers=1032, peak_bytes=(300 << 20) + 1024 * 400)
    (row,) = memory_table("T", samples([few, many])).rows
    assert row == ["vote", "8 and 1032", "300 MiB", "300 MiB", "4.00 bytes"]
    assert memory_table("T", samples([few, made(workers=64)])).rows == []  # a system that does not say


def test_methods_are_held_against_what_people_have_at_the_same_place() -> None:
    adamw, lion, close = (2.0, 2.1), (2.05, 2.15), (2.1, 2.04)
    found = samples(
        [
            *seeds(adamw, method="adamw"),
            *seeds(lion, method="lion"),
            *seeds(close),
            *seeds(close, workers=8),
            made(1.5, task="resnet", method="adamw"),
            made(2.5, task="resnet"),
        ]
    )
    grid = comparison("T", found)
    assert list(grid.headings[-2:]) == ["better than global AdamW by", "better than global Lion by"]
    cells = [[*row[:2], *row[3:]] for row in grid.rows]
    assert cells == [
        ["gpt, 4 workers", "global AdamW", "2.050 ± 0.050", "2", "–", "+0.0500 ± 0.0000 (0.0000)"],
        ["gpt, 4 workers", "global Lion", "2.100 ± 0.050", "2", "-0.0500 ± 0.0000 (0.0000)", "–"],
        ["gpt, 4 workers", "vote", "2.070 ± 0.030", "2", "-0.0200 ± 0.0800 (1.0165)", "+0.0300 ± 0.0800 (1.0165)"],
        ["gpt, 8 workers", "vote", "2.070 ± 0.030", "2", "–", "–"],
        ["resnet, 4 workers", "global AdamW", "1.5", "1", "–", "–"],
        ["resnet, 4 workers", "vote", "2.5", "1", "+1.00", "–"],
    ]
    assert "bits per byte" in grid.note


def test_where_rates_vary_nothing_is_held_against_one_of_them() -> None:
    grid = comparison("T", samples([made(2.0, method="adamw"), made(2.1), made(2.2, lr=1e-2)]))
    assert list(grid.headings) == ["place", "method", "bits", "quality", "seeds"]
    assert [row[0] for row in grid.rows] == [f"gpt, 4 workers, lr {lr}" for lr in (0.001, 0.001, 0.01)]


def test_tensors_are_gathered_by_the_kind_of_their_layer() -> None:
    assert kind("blocks.3.mlp_in.weight") == "mlp"
    assert kind("blocks.0.attention_norm.weight") == "norms and biases"
    assert kind("stages.1.shortcut.0.weight") == "convolution"
    assert kind("embedding.weight") == kind("positions") == "embedding"
    for job in (
        "gpt-230k",
        "gpt-normal-480k",
        "llama-400k",
        "vit-200k",
        "resnet-170k",
    ):  # all that is large has a kind of its own
        large = [name for name, param in JOBS[job].build().named_parameters() if param.dim() > 1]
        assert "norms and biases" not in {kind(name) for name in large}


def test_agreement_and_divergence_by_layer() -> None:
    figures = {"embedding.weight": 0.5, "blocks.0.mlp_in.weight": 0.75, "blocks.0.mlp_out.weight": 0.25}
    found = samples([made(agreement=figures, divergence=figures), made(workers=8, method="lion")])
    agreement, drift = agreement_table("T", found), divergence_table("T", found)
    assert agreement is not None
    assert drift is not None
    assert agreement.headings == ["method", "embedding", "mlp"]
    assert agreement.rows == [["vote, 4 workers", "50", "50"]]
    assert drift.rows == [["vote, 4 workers", "0.5", "0.5"]]
    assert agreement_table("T", samples([made(method="lion")])) is None


def test_rates_are_named_where_they_vary() -> None:
    found = samples([made(2.0, lr=1e-3), made(2.5, lr=3e-3)])
    assert table("T", found).headings[3:] == ["4 workers, lr 0.001", "4 workers, lr 0.003"]


def test_the_page_has_a_view_for_each_experiment_and_task() -> None:
    preset = Preset(experiments={"<e>": EXPERIMENT}, settings=SETTINGS)
    todo, _ = remaining([EXPERIMENT], preset, [])
    runs = [replace(made(2.0 + spec.seed), spec=spec) for spec in todo]
    html = page(preset, ["<e>"], runs)
    assert "&lt;e&gt;, gpt" in html
    assert "<e>" not in html
    assert [grid.title for grid in tables(preset, ["<e>"], runs)] == ["<e>: Q?"]


@pytest.mark.parametrize("preset", ["quick", "full"])
def test_the_published_tables_are_what_the_published_records_say(preset: str, tmp_path: Path) -> None:
    copy = tmp_path / "convergence.md"
    copy.write_text((DOCS / "convergence.md").read_text())
    records = (DOCS / "records" / "study" / f"{preset}.jsonl",)
    run_study(
        StudyConfig(preset=preset, records=records, docs=copy, draw=False, run=False, out=tmp_path),
        Console(file=io.StringIO()),
    )
    assert copy.read_text() == (DOCS / "convergence.md").read_text()
