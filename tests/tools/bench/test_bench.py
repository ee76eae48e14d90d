"""The benchmark: its cases, its clock, its figures, and a quick run from end to end."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from lioncub import kernels
from lioncub.errors import ConfigError
from lioncub.kernels import Part, UpdateVector, torch_ops
from lioncub.kernels.layout import Layout
from lioncub.tools.bench import measure as clock
from lioncub.tools.bench import naive, run, small_cases
from lioncub.tools.bench.cases import Case, cpu_bodies
from lioncub.tools.bench.config import BenchConfig
from lioncub.tools.bench.docs import MARKERS, write_docs
from lioncub.tools.bench.kernel_cases import APPLY_ALONE, ENCODE_AHEAD, NAIVE
from lioncub.tools.bench.measure import Timing, measure, pooled, sample
from lioncub.tools.bench.page import page
from lioncub.tools.bench.records import Record, records_of
from lioncub.tools.bench.shapes import gpt2_small, resnet50, shrunk
from lioncub.tools.bench.step_cases import (
    BARE,
    FOREACH,
    FUSED,
    HALF,
    LION,
    LION_PYTORCH,
    TWO_PHASE,
    TwoPhaseReady,
    parameters,
)
from lioncub.tools.bench.tables import tables
from lioncub.tools.cli import app
from lioncub.tools.reporting.grid import Grid
from lioncub.tools.reporting.machine import UNKNOWN_L3_BYTES, command_line, commit, cpu_model, l3_bytes
from lioncub.tools.reporting.page import TEMPLATES
from tests.support.paths import DOCS

OURS = [LION, TWO_PHASE, f"{TWO_PHASE}, {BARE}", f"{LION}, {HALF}", f"{TWO_PHASE}, {HALF}"]
BODIES, LEFT_OUT = cpu_bodies()
KERNELS = [
    "encode_signs",
    ENCODE_AHEAD,
    "encode_signs, abstain",
    "encode_levels, 4 bits log",
    "encode_levels, 4 bits midrise",
    "encode_levels, 8 bits midrise",
    "encode_values",
    *(f"majority of {n}, {where}" for n in (2, 4, 8, 16, 32) for where in ("from memory", "in cache")),
    "majority of 4, 4 bits log",
    "count_ones of 4",
    "apply_, signs",
    "apply_, counts of 4",
    APPLY_ALONE,
    "lion_",
    "count_matches",
    "fingerprint",
]


# ---- what is timed ---------------------------------------------------------------------------------------------------


def test_the_models_have_the_tensors_everyone_knows() -> None:
    assert (len(resnet50()), sum(map(math.prod, resnet50()))) == (161, 25_557_032)
    assert (len(gpt2_small()), sum(map(math.prod, gpt2_small()))) == (148, 124_439_808)
    assert shrunk([(64, 3, 7, 7), (1000,)], 8) == [(8, 1, 1, 1), (125,)]


def update_vector(*lengths: int) -> UpdateVector:
    generator = torch.Generator().manual_seed(0)
    pairs = [torch.randn(2, length, generator=generator) for length in lengths]
    parts = [Part(m, g, 0.9, 0.1) for m, g in pairs]
    return UpdateVector(parts, Layout(lengths, 2), torch.float32, torch.device("cpu"))


@pytest.mark.parametrize("lengths", [(128,), (1 << 16,), (100, 29, 127)])
def test_the_naive_encoding_has_the_same_bits(lengths: tuple[int, ...]) -> None:
    u = update_vector(*lengths)
    expected, slow = torch_ops.encode_signs(u, 0, abstain=False), naive.encode_signs(u)
    shown = u.layout.numel // 8  # bytes without padding, which the naive form does not alternate
    assert torch.equal(slow.payload.view(-1)[:shown], expected.payload.view(-1)[:shown])
    assert slow.finite
    assert slow.payload.shape == expected.payload.shape


def test_the_naive_encoding_sees_what_is_not_finite_and_refuses_missing_gradients() -> None:
    u = update_vector(128)
    m = u.parts[0].m
    assert m is not None
    m[3] = math.inf
    assert not naive.encode_signs(u).finite
    with pytest.raises(ValueError, match="needs a momentum and a gradient"):
        naive.encode_signs(u.silent())


@pytest.mark.parametrize("spare", [True, False])
@pytest.mark.parametrize("body", BODIES)
def test_a_two_phase_ready_step_moves_every_parameter_and_momentum(body: str, spare: bool) -> None:
    ready = TwoPhaseReady(parameters([(40, 5), (7,), (300,)]), spare=spare)
    before = [param.detach().clone() for param in ready.params]
    with torch.no_grad(), kernels.using(body):
        ready.step()
    for param, old, momentum in zip(ready.params, before, ready.momenta, strict=True):
        moved = (param.detach() - old * (1 - 1e-6)).abs()
        torch.testing.assert_close(moved, torch.full_like(moved, 1e-4), rtol=0, atol=1e-6)
        assert param.grad is not None
        torch.testing.assert_close(momentum, param.grad * 0.01)


def test_triton_is_left_out_with_a_reason_even_where_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "triton" in LEFT_OUT
    monkeypatch.setattr(kernels, "bodies", lambda: {"native": "no compiler", "triton": "", "torch": ""})
    usable, reasons = cpu_bodies()
    assert usable == ["torch"]
    assert reasons["native"] == "no compiler"
    assert "CPU tensors are measured here" in reasons["triton"]


# ---- the clock -------------------------------------------------------------------------------------------------------


def case_of(name: str = "case", **given: Any) -> Case:
    usual: dict[str, Any] = {"group": "kernel", "run": lambda _: None, "bytes_read": 0, "bytes_written": 0}
    return Case(**({"name": name, "limit": "read"} | usual | given))


def test_cases_take_turns_after_a_round_that_does_not_count() -> None:
    seen: list[str] = []
    cases = [
        case_of("a", run=lambda i: seen.append(f"a{i}"), calls=2),
        case_of("b", run=lambda i: seen.append(f"b{i}"), warm=True),
    ]
    ticks: list[None] = []
    timings = measure(cases, 1, 3, lambda: ticks.append(None))
    assert seen == 4 * ["a0", "a1", "b0", "b0"]
    assert [len(timing.samples) for timing in timings] == [3, 3]
    assert len(ticks) == 8


def test_the_median_is_over_the_samples_of_all_rounds() -> None:
    rounds = [[Timing(case_of(), 1, samples)] for samples in ((1.0, 2.0, 9.0), (3.0, 4.0, 5.0))]
    (timing,) = pooled(rounds)
    assert timing.samples == (1.0, 2.0, 9.0, 3.0, 4.0, 5.0)
    assert timing.seconds == 3.5


def test_threads_and_gradients_are_set_for_a_measurement_only() -> None:
    before = torch.get_num_threads()
    seen: list[tuple[int, bool]] = []
    measure([case_of(run=lambda _: seen.append((torch.get_num_threads(), torch.is_grad_enabled())))], 2, 3, int)
    assert set(seen) == {(2, False)}
    assert torch.get_num_threads() == before
    assert torch.is_grad_enabled()


def test_a_sample_ends_early_when_its_calls_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(100))
    monkeypatch.setattr(clock, "perf_counter", lambda: float(next(now)))
    seen: list[int] = []
    assert sample(case_of(run=seen.append, calls=50)) == 1.0
    assert seen == [0]


# ---- figures ---------------------------------------------------------------------------------------------------------


def test_percent_is_of_the_fastest_ceiling_of_its_kind_and_ratios_of_the_named_case() -> None:
    gigabyte = 10**9
    slow = case_of("slow read", group="ceiling", bytes_read=gigabyte)
    fast = case_of("fast read", group="ceiling", bytes_read=gigabyte)
    axpy = case_of("axpy", group="ceiling", bytes_read=2 * gigabyte, bytes_written=gigabyte, limit="axpy")
    other = case_of("other", bytes_read=gigabyte)
    mine = case_of("mine", bytes_read=gigabyte, bytes_written=gigabyte, body="torch", ratio_to="other", num_tensors=4)
    seconds = {slow: 0.2, fast: 0.1, axpy: 0.1, other: 1.0, mine: 0.25}
    timings = [Timing(case, 1, (time / 2, time, 2 * time)) for case, time in seconds.items()]
    records = {record.name: record for record in records_of(timings)}
    assert records["mine"].gb_per_second == pytest.approx(8)
    assert records["mine"].ceiling == "fast read"
    assert records["mine"].percent == pytest.approx(80)
    assert records["mine"].ratio == pytest.approx(4)
    assert records["mine"].seconds_per_tensor == 0.0625
    assert records["mine"].lower_quartile_seconds == pytest.approx(0.1875)
    assert records["axpy"].percent == pytest.approx(100)
    assert records["slow read"].percent == pytest.approx(50)
    assert records["other"].ratio is None


def record(name: str, seconds: float = 1.0, body: str = "", model: str = "", **given: Any) -> Record:
    usual: dict[str, Any] = {
        "group": "step" if model else "kernel",
        "threads": 1,
        "num_tensors": 1,
        "numel": 1,
        "inputs": "memory",
        "samples": 3,
        "calls": 1,
        "lower_quartile_seconds": seconds,
        "upper_quartile_seconds": seconds,
        "bytes_read": 0,
        "bytes_written": 0,
        "gb_per_second": 1.0,
        "ceiling": "read",
        "ceiling_gb_per_second": 10.0,
        "percent": 1.0,
        "ratio_to": "",
        "ratio": None,
    }
    return Record(**(usual | {"name": name, "body": body, "model": model, "median_seconds": seconds} | given))


def made_up(body: str = "native") -> list[Record]:
    """Records of a run with one thread."""
    tiny: dict[str, Any] = {"group": "small", "num_tensors": 1000, "body": body}
    made = [
        record(NAIVE, 2.0),
        record("encode_signs", 0.1, body, percent=85.0),
        record("encode_signs", 1.0, "torch", percent=85.0),
        *(record(name, 1.0, body, percent=85.0) for name in ("apply_, signs", ENCODE_AHEAD, APPLY_ALONE)),
        *(record(f"majority of {n}, in cache", 0.099, body, bytes_read=10**9) for n in (2, 4, 8, 16)),
        record("majority of 32, in cache", 0.2, body, bytes_read=10**9),
        *(record(name, 0.00499, **tiny) for name in (small_cases.ENCODE, small_cases.APPLY, small_cases.STEP)),
    ]
    for model in ("ResNet-50", "GPT-2 small"):
        made += [
            record(FUSED, 1.3, model=model),
            record(FOREACH, 9.0, model=model),
            record(LION_PYTORCH[0], 3.9, model=model),
            record(LION_PYTORCH[1], 5.0, model=model),
            record(LION, 1.0, body, model=model),
            record(TWO_PHASE, 1.3, body, model=model),
        ]
    return made


def changed(records: Sequence[Record], which: str, **given: Any) -> list[Record]:
    return [replace(record, **given) if record.name == which else record for record in records]


# ---- configuration ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"numel": 1000}, "numel must be a multiple of 2048: 32 workers share it, got 1000"),
        ({"numel": 0}, "numel must be a multiple of 2048"),
        ({"rounds": 0}, "rounds must be at least 1, got 0"),
        ({"repeats": 2}, "repeats must be at least 3, for a median, got 2"),
        ({"threads": (1, 1)}, r"threads must be different numbers from 1 up, got \[1, 1\]"),
        ({"threads": (0,)}, "threads must be different numbers"),
        ({"threads": (9999,)}, "threads must not be more than this machine's"),
        ({"out": Path(__file__)}, "out must be a directory"),
        ({"docs": Path("no/such.md")}, "docs must be a document with the lines"),
        ({"docs": Path(__file__)}, "docs must have one line"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BenchConfig(**settings)


def test_the_command_line_refuses_them_too() -> None:
    result = CliRunner().invoke(app, ["bench", "kernels", "--repeats", "2"])
    assert isinstance(result.exception, ConfigError)


def test_the_command_is_what_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/lioncub", "bench", "kernels", "--out", "a b"])
    assert run.describe(BenchConfig())["command"] == "lioncub bench kernels --out 'a b'"


def test_a_full_run_is_out_of_cache() -> None:
    assert BenchConfig().rotating_bytes >= 4 * l3_bytes()
    assert not BenchConfig(numel=4096 * (l3_bytes() // 4096)).in_cache
    assert BenchConfig(numel=4096 * (l3_bytes() // 4096 // 4)).in_cache


def test_what_a_machine_does_not_say_is_guessed(tmp_path: Path) -> None:
    assert cpu_model(tmp_path / "none")
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: A CPU\nmodel name\t: B\n")
    assert cpu_model(tmp_path / "cpuinfo") == "A CPU"
    (tmp_path / "size").write_text("49152K\n")
    assert l3_bytes(tmp_path / "size") == 48 << 20
    assert l3_bytes(tmp_path / "none") == UNKNOWN_L3_BYTES
    assert commit(tmp_path / "size") == ""


def test_a_commit_is_marked_where_its_sources_were_changed(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=T", "-c", "user.email=t@example.org")
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    source, text = tmp_path / "src" / "a.py", tmp_path / "docs" / "a.md"
    for path in (source, text):
        path.parent.mkdir()
        path.write_text("1")
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    clean = commit(source)
    assert len(clean) == 12
    text.write_text("2")
    assert commit(source) == clean
    source.write_text("2")
    assert commit(source) == f"{clean}+"


# ---- what is shown ---------------------------------------------------------------------------------------------------


def test_tables_escape_what_they_are_given() -> None:
    grid = Grid("a <b>", ["x|y", "[red]"], [["<i>", "[/]"]], "a & b")
    html = TEMPLATES.get_template("parts.html").module.table(grid)  # type: ignore[attr-defined]
    assert "<td>&lt;i&gt;</td><td>[/]</td>" in html
    assert "<h2>a &lt;b&gt;</h2>" in html
    assert "<p>a &amp; b</p>" in html
    assert "| x\\|y | [red] |\n| --- | ---: |\n| &lt;i&gt; | [/] |" in grid.to_markdown()
    console = Console(file=io.StringIO(), width=80)
    console.print(grid.to_rich())
    assert isinstance(console.file, io.StringIO)
    assert "[/]" in console.file.getvalue()


def test_the_page_escapes_what_it_is_given() -> None:
    records = changed(made_up(), "encode_signs", name="<script>alert(1)</script>")
    about = run.describe(BenchConfig(docs=None)) | {"cpu": "<b>CPU</b>", "command": "a < b"}
    html = page(records, tables(records), about)
    assert "<script>alert" not in html
    assert "<b>CPU" not in html
    assert "<p>a &lt; b</p>" in html


def test_only_what_is_between_the_markers_is_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(f"before\n{MARKERS.begin}\nold\n{MARKERS.end}\nafter\n")
    about = run.describe(BenchConfig())
    for _ in range(2):
        write_docs(path, about, [Grid("Results", ["case", "figure"], [["a", "1"]])])
    text = path.read_text()
    assert text.startswith(f"before\n{MARKERS.begin}\nMeasured on ")
    assert text.endswith(f"| a | 1 |\n\n{MARKERS.end}\nafter\n")
    assert "old" not in text
    assert text.count("### Results") == 1
    assert f"```sh\n{command_line()}\n```" in text


def test_the_repository_s_page_has_the_markers() -> None:
    BenchConfig(docs=DOCS / "kernels.md")


# ---- a quick run from end to end -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ran:
    lines: list[dict[str, Any]]
    html: str
    docs: str
    printed: str

    def cases(self, group: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["kind"] == "case" and line["group"] == group]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("bench")
    docs, out = folder / "kernels.md", folder / "out"
    docs.write_text(f"{MARKERS.begin}\n{MARKERS.end}\n")
    arguments = [
        "bench",
        "kernels",
        "--quick",
        "--rounds",
        "2",
        "--threads",
        "1",
        "--out",
        str(out),
        "--docs",
        str(docs),
    ]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    lines = [json.loads(line) for line in (out / "kernels.jsonl").read_text().splitlines()]
    return Ran(lines, (out / "kernels.html").read_text(), docs.read_text(), result.stdout)


def test_every_kernel_is_timed_with_every_body(ran: Ran) -> None:
    timed = {(case["name"], case["body"]) for case in ran.cases("kernel")}
    assert timed == {(name, body) for name in KERNELS for body in BODIES} | {(NAIVE, "")}
    warm = {case["name"] for case in ran.cases("kernel") if case["inputs"] == "cache"}
    assert warm == {name for name in KERNELS if name.endswith("in cache")}


def test_every_method_is_timed_on_both_models(ran: Ran) -> None:
    timed = {(case["model"], case["name"], case["body"]) for case in ran.cases("step")}
    theirs = {(name, "") for name in (FUSED, FOREACH, *LION_PYTORCH)}
    ours = {(name, body) for name in OURS for body in BODIES}
    assert timed == {(model, *method) for model in ("ResNet-50", "GPT-2 small") for method in theirs | ours}
    assert {case["num_tensors"] for case in ran.cases("step")} == {161, 148}


def test_every_record_has_what_its_figures_depend_on(ran: Ran) -> None:
    for line in ran.lines:
        assert {"commit", "date", "cpu", "cores", "torch", "python", "command", "isa"} <= set(line)
    for case in (line for line in ran.lines if line["kind"] == "case"):
        assert 0 < case["lower_quartile_seconds"] <= case["median_seconds"] <= case["upper_quartile_seconds"]
        assert case["bytes_read"] > 0
        assert case["gb_per_second"] > 0
        assert case["percent"] == pytest.approx(100 * case["gb_per_second"] / case["ceiling_gb_per_second"])
        assert (case["threads"], case["samples"]) == (1, 2 * 3)
        assert (case["ratio"] is not None) == bool(case["ratio_to"])


def test_ceilings_are_timed_beside_each_model_and_reasons_are_kept(ran: Ran) -> None:
    assert {case["model"] for case in ran.cases("ceiling")} == {"", "ResNet-50", "GPT-2 small"}
    left_out = {line["name"]: line["reason"] for line in ran.lines if line["kind"] == "left-out"}
    assert left_out == LEFT_OUT


def test_the_page_needs_nothing_but_itself(ran: Ran) -> None:
    script = ran.html[ran.html.index("<script>") : ran.html.index("</script>")]
    ours = ran.html.replace(script, "")  # without plotly's own source
    assert not [word for word in ("src=", "://", "<link", "@import") if word in ours]
    assert ours.count('class="plot"') == 3
    for name in KERNELS:
        assert f"<td>{name}</td>" in ours


def test_tables_are_printed_and_written_into_the_docs(ran: Ran) -> None:
    for title in ("Memory ceilings", "Kernels", "Whole steps", "Tiny tensors"):
        assert title in ran.printed
        assert f"### {title}" in ran.docs
    assert "…" not in ran.printed
    assert "these figures mean nothing" in ran.docs
    assert f"```sh\n{command_line()}\n```" in ran.docs


def test_without_lion_pytorch_the_rest_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    from lioncub.tools.bench import step_cases

    monkeypatch.setattr(step_cases, "find_spec", lambda name: None)
    assert "lion-pytorch" in step_cases.missing_rivals()
    names = [case.name for case in step_cases.step_cases("model", [(8,)], ["torch"])]
    assert names == [FUSED, FOREACH, *OURS]


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_measured() -> None:
    from lioncub.tools.bench.run import run_bench

    with pytest.raises(ConfigError, match="cannot be written to"):
        run_bench(BenchConfig.of(quick=True, out=Path("/proc/nowhere")))
