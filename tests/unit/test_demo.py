"""The demo's parts, without worker processes."""

from __future__ import annotations

import io
import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from lioncub.demo.config import METHODS, DemoConfig
from lioncub.demo.corpus import CHUNK_BYTES, load_corpus, read_sources, split
from lioncub.demo.errors import CorpusError, WorkerFailedError
from lioncub.demo.launch import failure
from lioncub.demo.model import ByteGPT, next_byte_loss
from lioncub.demo.page import page
from lioncub.demo.progress import DemoProgress
from lioncub.demo.records import Step, parse_step, parse_steps, summarise
from lioncub.demo.run import describe, keep
from lioncub.demo.table import closing, table
from lioncub.errors import ConfigError
from lioncub.report.units import bytes_text


def steps_of(method: str, bytes_per_step: int = 100, num_steps: int = 4) -> list[Step]:
    """A made-up run whose loss falls from 5 to 5 - num_steps / 2; step n takes n seconds."""
    return [
        Step(
            method=method,
            step=n,
            seconds=n * (n + 1) / 2,
            step_seconds=float(n),
            bytes_sent=n * bytes_per_step,
            train_loss=5 - n / 2 if n else None,
            validation_loss=5 - n / 2 if n % 2 == 0 else None,
        )
        for n in range(num_steps + 1)
    ]


# ---- corpus ----------------------------------------------------------------------------------------------------------


def test_the_split_gives_every_twentieth_chunk_to_validation() -> None:
    text = torch.arange(40 * CHUNK_BYTES) // CHUNK_BYTES  # each element is the number of its chunk
    corpus = split(text)
    assert corpus.validation.unique().tolist() == [19, 39]
    assert len(corpus.validation) * 20 == len(text)
    assert corpus.train.unique().tolist() == [n for n in range(40) if n not in (19, 39)]


def test_the_standard_library_is_enough_and_always_the_same() -> None:
    first, second = load_corpus(max_bytes=2_000_000), load_corpus(max_bytes=2_000_000)
    assert torch.equal(first.train, second.train)
    assert torch.equal(first.validation, second.validation)
    assert len(first.train) + len(first.validation) == 2_000_000


def test_sources_are_sorted_and_leave_out_tests_and_packages(tmp_path: Path) -> None:
    for name in ("b.py", "a.py", "sub/c.py", "test/d.py", "sub/tests/e.py", "site-packages/f.py", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(name)
    assert read_sources(tmp_path, max_bytes=1_000) == b"a.pyb.pysub/c.py"
    assert read_sources(tmp_path, max_bytes=6) == b"a.pyb."


def test_too_little_source_is_an_error_that_names_the_place(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("pass")
    with pytest.raises(CorpusError, match=f"found 4 bytes .* below {tmp_path}, need 1,000,000"):
        load_corpus(tmp_path)


def test_batches_follow_the_generator_and_hold_consecutive_bytes() -> None:
    corpus = split((torch.arange(20 * CHUNK_BYTES) % 251).to(torch.uint8))
    one, same, other = (corpus.batch(torch.Generator().manual_seed(seed), 3, 8) for seed in (1, 1, 2))
    assert one.shape == (3, 9)
    assert one.dtype == torch.int64
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert ((one[:, 1:] - one[:, :-1]) % 251 == 1).all()


def test_validation_windows_reach_from_the_first_byte_to_the_last() -> None:
    corpus = split((torch.arange(20 * CHUNK_BYTES) % 251).to(torch.uint8))
    windows = corpus.validation_batch(5, 8)
    assert windows.shape == (5, 9)
    assert torch.equal(windows[0], corpus.validation[:9].long())
    assert torch.equal(windows[-1], corpus.validation[-9:].long())


# ---- model -----------------------------------------------------------------------------------------------------------


def small_model() -> ByteGPT:
    torch.manual_seed(0)
    return ByteGPT(width=32, layers=2, heads=4, context=16)


def test_logits_have_one_row_per_byte_and_short_inputs_work() -> None:
    model = small_model()
    assert model(torch.zeros(3, 16, dtype=torch.int64)).shape == (3, 16, 256)
    assert model(torch.zeros(3, 5, dtype=torch.int64)).shape == (3, 5, 256)


@torch.no_grad()
def test_no_logit_depends_on_a_later_byte() -> None:
    model = small_model()
    before = torch.randint(256, (1, 16), generator=torch.Generator().manual_seed(0))
    after = before.clone()
    after[0, 9] = (after[0, 9] + 1) % 256
    changed = (model(before) != model(after)).any(dim=-1)[0]
    assert not changed[:9].any()
    assert changed[9:].all()


@torch.no_grad()
def test_attention_knows_positions() -> None:
    model = small_model()
    forwards, swapped = torch.tensor([[1, 2, 3]]), torch.tensor([[2, 1, 3]])
    assert not torch.allclose(model(forwards)[0, -1], model(swapped)[0, -1])


def test_an_untrained_model_knows_nothing_and_gradients_reach_every_parameter() -> None:
    model = small_model()
    loss = next_byte_loss(model, torch.randint(256, (8, 17), generator=torch.Generator().manual_seed(0)))
    loss.backward()
    assert loss.item() == pytest.approx(math.log(256), abs=0.5)
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_the_default_model_has_about_a_million_parameters(tmp_path: Path) -> None:
    about = describe(DemoConfig(out=tmp_path))
    assert isinstance(about["parameters"], int)
    assert 800_000 <= about["parameters"] <= 1_200_000


# ---- configuration ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"workers": 1}, "workers must be at least 2, got 1"),
        ({"workers": 1000}, "workers must be at most 128"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"layers": 0}, "layers must be at least 1, got 0"),
        ({"width": 100}, "width must be a positive multiple of 8, got 100"),
        ({"width": 0}, "width must be a positive multiple of 8, got 0"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DemoConfig(**settings)  # type: ignore[arg-type]


def test_an_output_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(ConfigError, match="out must be a directory"):
        DemoConfig(out=tmp_path / "taken")


def test_a_configuration_survives_json(tmp_path: Path) -> None:
    config = DemoConfig(steps=7, out=tmp_path, lr=2e-3)
    assert DemoConfig.from_json(config.to_json()) == config
    with pytest.raises(ConfigError, match="unknown demo settings: colour"):
        DemoConfig.from_json(json.dumps({"colour": "red", "out": "x"}))


def test_the_learning_rate_rises_then_falls_to_a_tenth() -> None:
    config = DemoConfig(steps=100, warmup_steps=20, lr=1.0)
    rates = [config.lr_at(step) for step in range(1, 101)]
    assert rates[0] == pytest.approx(0.05)
    assert max(rates) == rates[19] == 1.0
    assert rates[-1] == pytest.approx(0.1)
    assert DemoConfig(steps=3, lr=1.0).lr_at(3) == 1.0


# ---- records and figures ---------------------------------------------------------------------------------------------


def test_a_step_survives_its_line() -> None:
    step = steps_of("vote")[3]
    assert parse_step(step.to_json()) == step


@pytest.mark.parametrize("line", ["", "{", "[]", "3", '{"kind": "run"}', '{"kind": "step", "step": 1}'])
def test_a_line_that_is_no_step_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not a step record"):
        parse_step(line)


def test_kept_records_can_be_read_again(tmp_path: Path) -> None:
    config = DemoConfig(out=tmp_path / "new" / "place")
    runs = [steps_of(method) for method in METHODS]
    records, html = keep(config.out, describe(config), runs, "<p>page</p>")
    text = records.read_text()
    assert parse_steps(text) == [step for steps in runs for step in steps]
    about = json.loads(text.splitlines()[0])
    assert about["config"]["lr"] == config.lr
    assert about["torch"] == torch.__version__
    assert html.read_text() == "<p>page</p>"


def test_figures_of_a_run() -> None:
    first, second = summarise([steps_of("global", 3200), steps_of("vote", 100)])
    assert first.validation_loss == 3.0
    assert first.bits_per_byte == pytest.approx(3.0 / math.log(2))
    assert first.step_seconds == 2.5
    assert (first.bytes_per_step, first.fewer_bytes) == (3200, 1.0)
    assert (second.bytes_per_step, second.fewer_bytes) == (100, 32.0)


def test_figures_need_a_finished_run() -> None:
    with pytest.raises(ValueError, match="the records of vote stop at step 3"):
        summarise([steps_of("vote")[:-1]])


def test_figures_of_a_run_that_sent_nothing() -> None:
    summaries = summarise([steps_of("global", 0), steps_of("vote", 0)])
    assert [summary.fewer_bytes for summary in summaries] == [1.0, 1.0]


def test_bytes_have_three_digits_and_a_unit() -> None:
    assert [bytes_text(n) for n in (0, 999, 1_000, 160_176, 5_125_632, 2e9)] == [
        "0 B", "999 B", "1 kB", "160 kB", "5.13 MB", "2 GB",
    ]  # fmt: skip


def test_the_table_fits_80_columns_and_the_sentence_has_its_figures() -> None:
    summaries = summarise([steps_of("global", 5_125_632), steps_of("vote", 160_176), steps_of("cub", 432_000)])
    console = Console(file=io.StringIO(), width=80)
    console.print(table(summaries, DemoConfig()))
    assert isinstance(console.file, io.StringIO)
    printed = console.file.getvalue()
    for cell in ("Distributed Lion", "3.000", "4.328", "2500", "5.13 MB", "32.0x"):
        assert cell in printed
    assert "…" not in printed
    sentence = closing(summaries)
    assert "Distributed Lion reached 3.00 with 32.0x fewer bytes" in sentence
    assert "Median steps took 2500, 2500, 2500 ms" in sentence
    assert "not measured here" in sentence


# ---- page ------------------------------------------------------------------------------------------------------------


def test_the_page_needs_nothing_but_itself_and_shows_every_method() -> None:
    runs = [steps_of(method) for method in METHODS]
    html = page(runs, summarise(runs), "title", "closing")
    ours = html.replace(html[html.index("<script>") : html.index("</script>")], "")  # without plotly's own source
    assert "src=" not in ours
    assert "://" not in ours
    assert "<link" not in ours
    assert "@import" not in ours
    assert html.count('class="plot"') == 2
    for label in METHODS.values():
        assert ours.count(label) == 3  # two plots and a table


def test_the_page_escapes_what_it_is_given() -> None:
    runs = [[replace(step, method="<script>alert(1)</script>") for step in steps_of("vote")]]
    html = page(runs, summarise(runs), "<b>title</b>", "a < b & c")
    assert "<script>alert" not in html
    assert "<td>&lt;script&gt;alert(1)&lt;/script&gt;</td>" in html
    assert "<p>&lt;b&gt;title&lt;/b&gt;</p>" in html
    assert "<p>a &lt; b &amp; c</p>" in html


# ---- progress and failures -------------------------------------------------------------------------------------------


def test_without_a_terminal_progress_is_a_line_at_the_end_of_each_method() -> None:
    console = Console(file=io.StringIO(), width=80)
    with DemoProgress(DemoConfig(steps=4), console) as progress:
        for step in steps_of("vote"):
            progress.on_step(step)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "Distributed Lion: loss 3.000 after 4 of 4 steps\n"


def test_on_a_terminal_progress_is_a_bar() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    with DemoProgress(DemoConfig(steps=4), console) as progress:
        for step in steps_of("cub"):
            progress.on_step(step)
    assert isinstance(console.file, io.StringIO)
    assert "Lion Cub: loss 3.000" in console.file.getvalue()
    assert "4/12" in console.file.getvalue()


def test_a_failure_names_the_first_worker_to_fail_and_keeps_all_logs(tmp_path: Path) -> None:
    scratch, out = tmp_path / "scratch", tmp_path / "out"
    for rank, text in (("0", "RuntimeError: Connection closed by peer\n"), ("2", "noise\n" * 50 + "OSError: full\n")):
        folder = scratch / "logs" / "none_x" / "attempt_0" / rank
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text(text)
    (scratch / "torchrun.log").write_text(
        "Root Cause (first observed failure):\n[0]:\n  rank      : 2 (local_rank: 2)\n"
    )
    message = str(WorkerFailedError(failure(DemoConfig(out=out), scratch, steps_of("cub"), 1)))
    assert message.startswith("worker 2 failed after step 4 of Lion Cub")
    assert message.endswith("OSError: full")
    assert len(message.splitlines()) < 20
    kept = (out / "failed.log").read_text()
    assert "Connection closed by peer" in kept
    assert "OSError: full" in kept


@pytest.mark.parametrize(
    ("torchrun_log", "who"),
    [
        ("Root Cause (first observed failure):\n[0]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : -9\n", "worker 1"),
        ("", r"torchrun \(exit code -9\)"),
    ],
)
def test_a_failure_without_last_words_says_who_it_was(tmp_path: Path, torchrun_log: str, who: str) -> None:
    (tmp_path / "torchrun.log").write_text(torchrun_log)
    message = failure(DemoConfig(out=tmp_path / "out"), tmp_path, [], -9)
    assert re.match(rf"{who} failed before the first step\.", message)
    assert message.endswith("exitcode  : -9" if torchrun_log else "(nothing)")


# ---- command line ----------------------------------------------------------------------------------------------------


def lioncub(*arguments: str, forbidden: str = "") -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, where `forbidden` cannot be imported."""
    code = f"import sys; sys.modules.update(dict.fromkeys({forbidden.split()!r})); from lioncub.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def test_the_version_is_printed() -> None:
    from lioncub import __version__

    assert lioncub("--version").stdout == f"{__version__}\n"


def test_a_bad_setting_is_one_line_and_exit_code_2() -> None:
    result = lioncub("demo", "--steps", "0")
    assert (result.returncode, result.stderr) == (2, "error: steps must be at least 1, got 0\n")


@pytest.mark.parametrize("missing", ["typer", "rich", "plotly"])
def test_without_its_dependencies_the_command_line_says_what_to_install(missing: str) -> None:
    result = lioncub("--version", forbidden=missing)
    assert result.returncode == 2
    assert result.stderr == f"the command line needs {missing}: pip install 'lioncub[cli]'\n"
