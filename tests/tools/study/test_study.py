"""The study: one run, what is run, what is left to run."""

from __future__ import annotations

import io
import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from lioncub import Levels, LionCub, Vote
from lioncub.errors import ConfigError
from lioncub.tools.data.load import load_text
from lioncub.tools.jobs.catalogue import JOBS, load_job
from lioncub.tools.jobs.job import Job
from lioncub.tools.study import presets, tasks
from lioncub.tools.study.config import StudyConfig
from lioncub.tools.study.errors import StudyError
from lioncub.tools.study.gradients import Replica
from lioncub.tools.study.ideas import CautiousLion, CertainLion, FanInLion, FeedbackLion, OrthogonalLion
from lioncub.tools.study.kinds import kind
from lioncub.tools.study.lions import VirtualLion
from lioncub.tools.study.methods import METHODS
from lioncub.tools.study.plan import remaining
from lioncub.tools.study.presets import PRESETS, Experiment, Preset
from lioncub.tools.study.records import Run, parse_run, read_runs
from lioncub.tools.study.results import of_experiment
from lioncub.tools.study.run import run_study
from lioncub.tools.study.search import (
    FINALISTS,
    FULL_SEEDS,
    NEIGHBOURS,
    SEARCH_SEED,
    SLOW_RISE,
    TRIALS,
    next_rate,
    search,
    spec_of,
)
from lioncub.tools.study.settings import Setting
from lioncub.tools.study.tasks import TASKS, Batches, dirichlet
from lioncub.tools.study.training import averaged, train
from tests.support.study_records import EXPERIMENT, SETTINGS, SPEC, made


@cache
def _from_the_standard_library(name: str) -> Job:
    return load_job(name, text="stdlib")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks of a few steps on text that is always there."""
    monkeypatch.setattr(tasks, "_loaded", _from_the_standard_library)
    monkeypatch.setitem(TASKS, "gpt", replace(TASKS["gpt"], steps=10, judged_on=512))


# ---- one run ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
def test_a_run_is_the_same_every_time_and_learns() -> None:
    spec = replace(SPEC, lr=3e-2)  # of which the first ten steps see a twentieth at most
    first, again = train(spec), train(spec)
    assert first.train_losses == again.train_losses
    assert first.quality == again.quality
    assert first.train_losses[-1] < first.train_losses[0] - 0.5
    assert (first.data, first.parameters) == (TASKS["gpt"].load().learned_from, 230_528)
    assert first.data.startswith("stdlib (Python 3.")
    assert 1.0 <= first.bits_up < 1.01
    assert 1.0 <= first.bits_down < 1.01
    assert set(first.agreement) == set(first.divergence)
    assert all(0.3 < value <= 1.0 for value in first.agreement.values())
    assert first.peak_bytes is not None
    assert 100 << 20 < first.peak_bytes < 4 << 30
    assert parse_run(first.to_json()) == first


@pytest.mark.usefixtures("small")
def test_what_does_not_stay_finite_is_said() -> None:
    run = train(replace(SPEC, method="terngrad", lr=1e20))
    assert run.loss is None
    assert run.quality is None
    assert run.end_loss == float("inf")
    assert parse_run(run.to_json()) == run


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains(method: str) -> None:
    family = METHODS[method].family
    run = train(replace(SPEC, method=method, workers=2, steps=2, lr=TASKS["gpt"].lrs[family][1]))
    assert run.quality is not None
    assert 0 < run.bits_up + run.bits_down < 64.01


@pytest.mark.parametrize("task", ["gpt-normal", "llama"])
def test_models_that_are_not_ours_train(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, task, replace(TASKS[task], judged_on=512))
    run = train(replace(SPEC, task=task, workers=2, steps=3, examples=512))
    assert run.quality is not None
    assert run.train_losses[-1] < run.train_losses[0]
    assert run.data == f"stdlib ({load_text('stdlib').version})"
    assert {kind(name) for name in run.divergence} >= {"embedding", "attention", "mlp"}


def test_tasks_are_of_text_or_of_images() -> None:
    images = {name for name, task in TASKS.items() if task.unit.startswith("% of test images")}
    assert images == {"vit", "resnet", "resnet-batch", "papers-vit", "papers-resnet"}
    assert {task.unit for name, task in TASKS.items() if name not in images} == {"bits per byte"}


@pytest.mark.usefixtures("small")
def test_a_copy_on_another_device_follows_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    here = train(SPEC)
    # This machine has no other device; a copy on the same one goes the same way.
    monkeypatch.setattr(Replica, "__init__", as_if_elsewhere)
    there = train(SPEC)
    assert there.train_losses == here.train_losses
    assert there.quality == here.quality


def as_if_elsewhere(replica: Replica, source: nn.Module, device: torch.device) -> None:
    replica.source, replica.device = source, device
    replica.model = replica.copied()
    assert replica.model is not source


@pytest.mark.usefixtures("small")
def test_workers_see_different_batches_and_the_same_ones_again() -> None:
    one, again = Batches(TASKS["gpt"], 2, 7), Batches(TASKS["gpt"], 2, 7)
    assert torch.equal(one.of(0)[0], again.of(0)[0])
    assert not torch.equal(one.of(0)[0], one.of(1)[0])
    with pytest.raises(ConfigError, match="classes of images only, not of gpt-230k"):
        Batches(TASKS["gpt"], 2, 7, skew=1.0)


def test_mixes_of_classes_differ_more_at_smaller_skew() -> None:
    def largest(skew: float) -> float:
        return float(torch.stack(dirichlet(200, 10, skew, 0)).amax(1).mean())

    assert largest(100.0) < 0.15 < largest(1.0) < 0.5 < largest(0.1)
    assert all(float(mix.sum()) == pytest.approx(1.0) for mix in dirichlet(3, 10, 0.01, 1))
    with pytest.raises(ConfigError, match="skew must be positive"):
        dirichlet(2, 10, 0.0, 0)


def test_buckets_by_codec_and_never_one_worker_alone() -> None:
    method = VirtualLion(
        [("head.weight", torch.zeros(70)), ("body", torch.zeros(5)), ("head.bias", torch.zeros(3))],
        2, codec=lambda name: Levels(4) if name.startswith("head") else Vote(), weight_decay=0.0,
    )  # fmt: skip
    assert [(bucket.codec, bucket.members) for bucket in method.buckets] == [(Levels(4), [0, 2]), (Vote(), [1])]
    with pytest.raises(ConfigError, match="two or more"):
        VirtualLion([("x", torch.zeros(3))], 1, codec=Vote(), weight_decay=0.0)


def test_agreement_is_with_the_exact_sign() -> None:
    x = torch.zeros(4)
    method = VirtualLion([("x", x)], 3, codec=Vote(), weight_decay=0.0, memory="constant", watch=True)
    rows = torch.tensor([[9.0, 1, 1, -1], [-1.0, 1, 1, -1], [-1.0, 1, -5, -1]])
    for worker, row in enumerate(rows):
        method.send(worker, [row])
    method.move(0.5)
    assert x.tolist() == [0.5, -0.5, -0.5, 0.5]
    assert method.agreements == {"x": 0.5}  # the first and the third were outvoted
    assert method.divergences()["x"] > 0.5


def test_error_feedback_loses_nothing() -> None:
    """What was said so far, at its scale, and what is kept add up to what was wanted."""
    x = torch.zeros(40)
    method = FeedbackLion([("x", x)], 2, codec=Vote(), weight_decay=0.0, betas=(0.5, 0.5), memory="constant")
    generator = torch.Generator().manual_seed(0)
    wanted, said, momentum = torch.zeros(40), torch.zeros(40), torch.zeros(40)
    for _ in range(7):
        g = torch.randn(40, generator=generator)
        update, momentum = 0.5 * momentum + 0.5 * g, 0.5 * momentum + 0.5 * g
        asked = update + method.errors[0][0]
        wanted += update
        said += asked.sign() * asked.abs().mean()
        before = x.clone()
        for worker in range(2):
            method.send(worker, [g])
        method.move(0.25)
        assert torch.equal(x, before - 0.25 * asked.sign())  # all say the same: they move by what was asked
    assert torch.allclose(said + method.errors[0][0], wanted, atol=1e-5)
    assert not torch.equal(said.sign(), wanted.sign())


def said(method: VirtualLion, *gradients: Tensor) -> Tensor:
    """What worker 0 speaks about after these gradients."""
    for g in gradients[:-1]:
        for worker in range(method.workers):
            method.send(worker, [g])
        method.move(0.0)
    part = method.part(0, 0, method.momenta[0][0], gradients[-1].reshape(-1))
    assert part.m is not None
    return part.m


def test_certainty_divides_by_the_root_of_the_second_moment() -> None:
    method = CertainLion([("x", torch.zeros(3))], 2, codec=Vote(), weight_decay=0.0, memory="constant")
    first, second = torch.tensor([1.0, -2.0, 4.0]), torch.tensor([1.0, 2.0, 4.0])
    v = (0.99 * 0.01 * first**2 + 0.01 * second**2) / (1 - 0.99**2)
    u = 0.9 * 0.01 * first + 0.1 * second
    torch.testing.assert_close(said(method, first, second), u / v.sqrt())


def test_caution_says_least_where_update_and_gradient_disagree() -> None:
    method = CautiousLion([("x", torch.zeros(2))], 2, codec=Vote(), weight_decay=0.0, betas=(0.9, 0.5), memory=0.0)
    u = said(method, torch.tensor([1.0, 1.0]), torch.tensor([-0.1, 0.1]))
    torch.testing.assert_close(u, torch.tensor([0.0, 0.46]))


@pytest.mark.parametrize("shape", [(6, 40), (40, 6), (8, 2, 3)])
def test_orthogonal_updates_have_singular_values_near_one(shape: tuple[int, ...]) -> None:
    named = [("mlp_in.weight", torch.zeros(shape))]
    method = OrthogonalLion(named, 2, codec=Vote(), weight_decay=0.0, memory="constant")
    g = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    u = said(method, g).view(shape[0], -1)
    values = torch.linalg.svdvals(u)
    assert values.min() > 0.6
    assert values.max() < 1.3
    assert (u * g.view(shape[0], -1)).sum() > 0
    head = OrthogonalLion([("head.weight", torch.zeros(3, 4))], 2, codec=Vote(), weight_decay=0.0)
    assert head.part(0, 0, head.momenta[0][0], torch.ones(12)).gain > 0, "as it is"


def test_rates_by_fan_in_keep_the_usual_rate() -> None:
    named = [("a.mlp_in.weight", torch.zeros(2, 10)), ("a.mlp_out.weight", torch.zeros(2, 40)), ("b", torch.zeros(4))]
    method = FanInLion(named, 2, codec=Vote(), weight_decay=0.0, memory="constant")
    assert method.rates == pytest.approx([2.0, 0.5, 1.0])
    for worker in range(2):
        method.send(worker, [torch.ones_like(param) for param in method.params])
    method.move(0.25)
    assert [float(param.flatten()[0]) for param in method.params] == pytest.approx([-0.5, -0.125, -0.25])


def test_the_schedule_rises_and_falls() -> None:
    task = TASKS["vit"]
    rates = [task.schedule(step, 1.0, 100) for step in range(100)]
    assert rates[:5] == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert rates[-1] < 0.01


def test_averages_over_stretches() -> None:
    assert averaged([1.0, 2.0], 5) == [1.0, 2.0]
    assert averaged([1.0, 3.0, 5.0, 7.0], 2) == [2.0, 6.0]


# ---- what is run -----------------------------------------------------------------------------------------------------


def test_presets_name_methods_and_tasks_that_there_are() -> None:
    for preset in PRESETS.values():
        for experiment in preset.experiments.values():
            assert set(experiment.methods) <= set(METHODS)
            assert set(experiment.tasks) <= set(TASKS)
            assert SEARCH_SEED not in experiment.seeds
    for task in TASKS.values():
        assert len({len(grid) for grid in task.lrs.values()}) == 1, "the same effort for each"


@pytest.mark.parametrize("preset", ["quick", "full"])
def test_every_method_of_an_experiment_can_be_made_for_its_tasks(preset: str) -> None:
    pairs = {
        (task, method)
        for experiment in PRESETS[preset].experiments.values()
        for task in experiment.tasks
        for method in experiment.methods
    }
    models = {task: JOBS[TASKS[task].job].build() for task, _ in pairs}
    for task, method in sorted(pairs):
        made = METHODS[method].build(list(models[task].named_parameters()), replace(SPEC, task=task, method=method))
        assert made.numel == sum(param.numel() for param in models[task].parameters())


def searched(method: str, quality: Callable[[Setting], float], *, trials: int = 99) -> dict[str, Run]:
    """The runs of a search in which a setting's loss is what ``quality`` says; so many of them."""
    done: dict[str, Run] = {}
    while True:
        wanted, found = search("gpt", method, done)
        todo = [spec for spec in wanted if spec.key not in done][: trials - len(done)]
        if found is not None or not todo:
            return done
        for spec in todo:
            decay = spec.weight_decay / TASKS["gpt"].weight_decay[METHODS[method].family]
            setting = Setting(spec.lr, round(decay, 3), spec.memory, spec.rise)
            end = quality(setting) - 1e-3 * spec.steps  # longer runs end lower
            done[spec.key] = replace(made(end=end), spec=spec, quality=end)


def distance(lr: float) -> Callable[[Setting], float]:
    return lambda setting: abs(math.log10(setting.lr / lr)) + abs(setting.decay - 1) + setting.rise


def test_settings_are_searched_first_and_chosen_by_training_loss() -> None:
    preset = Preset(experiments={"e": EXPERIMENT})
    todo, more = remaining([EXPERIMENT], preset, [])
    assert todo == [spec for method in ("lion", "vote") for spec in search("gpt", method, {})[0]]
    assert [spec.lr for spec in todo] == 2 * list(TASKS["gpt"].lrs["lion"])
    assert more
    done = searched("lion", distance(1e-3)) | searched("vote", distance(1e-3))
    assert search("gpt", "vote", done)[1] == Setting(1e-3)
    todo, more = remaining([EXPERIMENT], preset, list(done.values()))
    assert not more
    assert [(spec.method, spec.workers, spec.seed) for spec in todo] == [
        (method, workers, seed) for workers in (4, 8) for seed in (0, 1) for method in ("lion", "vote")
    ]
    assert {spec.lr for spec in todo} == {1e-3}
    finished = [*done.values(), *(replace(made(), spec=spec) for spec in todo)]
    assert remaining([EXPERIMENT, EXPERIMENT], preset, finished) == ([], False)
    assert len(of_experiment(EXPERIMENT, preset, finished)) == 4


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_as_many_trials_and_full_runs(method: str) -> None:
    middle = TASKS["gpt"].lrs[METHODS[method].family][1]
    for best in (middle, middle / 1000, middle * 1000):
        done = searched(method, distance(best))
        lengths = Counter(run.spec.steps for run in done.values())
        assert lengths == {
            TASKS["gpt"].steps // 2: TRIALS,
            TASKS["gpt"].steps: (FINALISTS + NEIGHBOURS) * len(FULL_SEEDS),
        }


def test_a_search_looks_at_all_that_a_method_may_choose() -> None:
    tried = [run.spec for run in searched("adamw", distance(3e-3)).values()]
    assert {spec.memory for spec in tried} == {"", "0.99", "0.98", "0.95"}
    assert {spec.rise for spec in tried} == {0.05, SLOW_RISE}
    best = Setting(3e-3, memory="0.95", rise=SLOW_RISE)
    wants = lambda setting: distance(3e-3)(setting) - 2 * setting.rise - (setting.memory == "0.95")  # noqa: E731
    assert search("gpt", "adamw", searched("adamw", wants))[1] == best


def test_the_longer_run_decides() -> None:
    """A rate beside the best of the short trials is ahead in full length."""
    done = searched("vote", distance(1e-3))
    full = [run.spec for run in done.values() if run.spec.steps == TASKS["gpt"].steps]
    assert len({spec.lr for spec in full}) == FINALISTS + NEIGHBOURS
    second = full[-1]  # on the second seed: the mean of both decides
    done[second.key] = replace(done[second.key], train_losses=(-9.0,))
    found = search("gpt", "vote", done)[1]
    assert found is not None
    assert spec_of(found, "gpt", "vote", workers=8, seed=FULL_SEEDS[-1], length=1.0) == second


def test_codecs_that_are_compared_take_one_setting() -> None:
    experiment = replace(EXPERIMENT, settings_of="exact")
    preset = Preset(experiments={"e": experiment})
    todo, more = remaining([experiment], preset, [])
    assert (todo, more) == (search("gpt", "exact", {})[0], True)
    todo, more = remaining([experiment], preset, list(searched("exact", distance(3e-3)).values()))
    assert {(spec.method, spec.lr) for spec in todo} == {("lion", 3e-3), ("vote", 3e-3)}
    assert not more


def test_rates_that_are_given_are_all_run_and_nothing_is_searched() -> None:
    experiment = replace(EXPERIMENT, methods=("adamw", "vote"), rates={"adamw": (1e-3, 3e-3), "lion": (1e-4,)})
    todo, more = remaining([experiment], Preset(), [])
    assert not more
    assert {(spec.method, spec.lr) for spec in todo} == {("adamw", 1e-3), ("adamw", 3e-3), ("vote", 1e-4)}


def test_memories_are_compared_at_the_setting_that_was_found() -> None:
    experiment = replace(EXPERIMENT, methods=("vote",), memories=("", "0.99", "growing-5"))
    todo, _ = remaining([experiment], Preset(settings={"vote": Setting(1e-3, rise=0.25)}), [])
    assert {(spec.lr, spec.rise, spec.memory) for spec in todo} == {
        (1e-3, 0.25, memory) for memory in ("", "0.99", "growing-5")
    }
    named = [("x", torch.zeros(3))]
    methods = [METHODS["vote"].build(named, replace(SPEC, memory=m)) for m in ("0.99", "growing-5")]
    assert [(m.betas, m.memory, m.warmup) for m in methods if isinstance(m, VirtualLion)] == [
        ((0.9, 0.99), 0.0, 0),
        ((0.9, 0.99), 5.0, 200),
    ]


def test_a_search_that_diverges_everywhere_but_once_takes_that_one() -> None:
    lr = TASKS["gpt"].lrs["lion"][2]
    done = searched("vote", lambda setting: 1.0 if setting == Setting(lr) else math.inf)
    assert search("gpt", "vote", done)[1] == Setting(lr)


@pytest.mark.parametrize(
    ("best", "tried"),
    [
        (2e-2, [3e-4, 1e-3, 3e-3, 1e-2, 3e-2]),
        (1e-4, [3e-4, 1e-3, 3e-3, 1e-2, 1e-4, 3e-5]),
        (1.0, [3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1]),
    ],
    ids=["the end was best", "one below is better", "it ends somewhere"],
)
def test_a_search_goes_on_beyond_the_end_of_its_grid(best: float, tried: list[float]) -> None:
    done = searched("vote", distance(best))
    plain = [spec.lr for spec in (run.spec for run in done.values()) if spec.rise == 0.05 and spec.weight_decay == 0.1]
    assert plain[: len(tried)] == tried


def test_what_was_found_is_shown_while_the_search_goes_on() -> None:
    preset = Preset(experiments={"e": EXPERIMENT}, settings={"lion": Setting(1e-3)})
    done = searched("vote", distance(1e-3), trials=6)
    assert search("gpt", "vote", done)[1] is None
    assert remaining([EXPERIMENT], preset, list(done.values()))[1]
    run = made(lr=1e-3, workers=4, seed=0, steps=TASKS["gpt"].steps)
    assert [sample.one for sample in of_experiment(EXPERIMENT, preset, [*done.values(), run])] == [run]
    assert of_experiment(EXPERIMENT, preset, [run]) == []


def test_rates_are_one_three_ten() -> None:
    assert [next_rate(lr, up=True) for lr in (3e-4, 1e-3, 0.3, 1.0)] == [1e-3, 3e-3, 1.0, 3.0]
    assert [next_rate(lr, up=False) for lr in (3e-4, 1e-3, 0.3, 1.0)] == [1e-4, 3e-4, 0.1, 0.3]


@pytest.mark.usefixtures("small")
def test_a_study_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = Experiment(question="Q?", methods=("lion", "vote"), tasks=("gpt",), workers=(2,), seeds=(0, 1))
    monkeypatch.setitem(presets.PRESETS, "tiny", Preset(experiments={"e": tiny}, settings=SETTINGS, length=0.3))
    config = StudyConfig(preset="tiny", jobs=1, out=tmp_path)
    monkeypatch.setattr("lioncub.tools.study.run.pool", inline_pool)
    said = Console(file=io.StringIO(), width=200)
    runs = run_study(config, said)
    assert len(runs) == 4
    lines = config.own_records.read_text().splitlines()
    config.own_records.write_text("\n".join(lines[:2]) + "\n" + lines[2][:40])  # a crash in the middle of a line
    again = run_study(config, said)
    key = lambda run: run.spec.key  # noqa: E731
    assert [(run.spec, run.quality) for run in sorted(again, key=key)] == [
        (run.spec, run.quality) for run in sorted(runs, key=key)
    ]
    assert len(config.own_records.read_text().splitlines()) == 4
    assert isinstance(said.file, io.StringIO)
    assert "bits per byte" in said.file.getvalue()
    assert config.page_path.read_text().startswith("<!doctype html>")
    document = tmp_path / "page.md"
    document.write_text(
        "Before.\n<!-- study:tiny:e:begin -->\n<!-- study:tiny:e:end -->\n"
        "<!-- study:tiny:effort:begin -->\n<!-- study:tiny:effort:end -->\nAfter.\n"
    )
    monkeypatch.delattr("lioncub.tools.study.run.pool")  # nothing is trained
    run_study(replace(config, docs=document, run=False), said)
    written = document.read_text()
    assert "### e: Q?" in written
    assert "| all | 4 | 0 |" in written
    assert written.startswith("Before.\n")
    assert written.endswith("After.\n")


@pytest.mark.usefixtures("small")
def test_runs_on_other_data_are_not_mixed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = Experiment(question="Q?", methods=("vote",), tasks=("gpt",), workers=(2,), seeds=(0,))
    monkeypatch.setitem(presets.PRESETS, "tiny", Preset(experiments={"e": tiny}, settings=SETTINGS))
    config = StudyConfig(preset="tiny", jobs=1, out=tmp_path)
    config.own_records.write_text(made().to_json() + "\n")
    with pytest.raises(StudyError, match=r"learn from stdlib .* now, but .* from made.*another --out"):
        run_study(config, Console(file=io.StringIO()))
    run_study(replace(config, run=False), Console(file=io.StringIO()))


def test_a_pool_of_real_processes_makes_the_same_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = Experiment(question="Q?", methods=("vote",), tasks=("gpt",), workers=(2,), seeds=(0, 1))
    monkeypatch.setitem(presets.PRESETS, "tiny", Preset(experiments={"e": tiny}, settings=SETTINGS, length=0.001))
    config = StudyConfig(preset="tiny", jobs=2, out=tmp_path)
    runs = run_study(config, Console(file=io.StringIO()))
    assert {run.spec.seed for run in runs} == {0, 1}
    assert [run.train_losses for run in runs] == [train(run.spec).train_losses for run in runs]


class _Now:
    """A pool that runs what it is given at once."""

    def submit(self, work: Any, *arguments: Any) -> Any:
        from concurrent.futures import Future

        future: Future[Any] = Future()
        future.set_result(work(*arguments))
        return future


def inline_pool(jobs: int) -> Any:
    import multiprocessing
    from contextlib import nullcontext

    return nullcontext((_Now(), multiprocessing.get_context("spawn").SimpleQueue()))


def test_bad_settings_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for settings, problem in (
        ({"preset": "huge"}, "no preset 'huge': choose from quick"),
        ({"experiments": ("bits",)}, "preset quick has no experiment 'bits': choose from tradeoff"),
        ({"tasks": ("vit",)}, "no experiment here has a task 'vit': choose from gpt"),
        ({"preset": "full", "experiments": ("skew",), "tasks": ("resnet", "gpt")}, "a task 'gpt': choose from resnet"),
        ({"jobs": 0}, "jobs must be at least 1"),
        ({"minutes": 0.0}, "minutes must be positive"),
        ({"device": "cuda"}, "device=cuda: cannot be computed on"),
        ({"device": "abacus"}, "device=abacus: cannot be computed on"),
        ({"out": tmp_path / "file"}, "out must be a folder"),
        ({"records": (tmp_path / "none",)}, "there is no .*none"),
        ({"docs": tmp_path / "file"}, "study:quick:tradeoff:begin"),
    ):
        with pytest.raises(ConfigError, match=problem):
            StudyConfig(**settings)


def test_some_tasks_of_some_experiments_are_trained() -> None:
    config = StudyConfig(preset="full", experiments=("parity", "skew"), tasks=("resnet",))
    assert [experiment.tasks for experiment in config.to_train] == [("resnet",), ("resnet",)]
    language = StudyConfig(preset="full", experiments=("parity", "skew"), tasks=("gpt",))
    assert [experiment.tasks for experiment in language.to_train] == [("gpt",), ()]
    assert {spec.task for spec in remaining(language.to_train, presets.PRESETS["full"], [])[0]} == {"gpt"}
    assert StudyConfig(preset="full").to_train == list(presets.PRESETS["full"].experiments.values())


def test_records_that_are_none_are_named(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(made().to_json() + "\n" + '{"kind": "cell"}\n')
    with pytest.raises(ValueError, match=r"records.jsonl, line 2: not a record of a study"):
        read_runs([path])
    with pytest.raises(StudyError, match="line 2"):
        run_study(StudyConfig(out=tmp_path), Console(file=io.StringIO()))
    path.write_text(made().to_json() + "\n" + made(3.0).to_json() + "\n" + '{"kind": "ru')
    assert [run.quality for run in read_runs([path])] == [3.0]
    assert json.loads(made().to_json())["spec"]["task"] == "gpt"


def test_the_study_judges_the_default() -> None:
    named = [("weight", nn.Parameter(torch.ones(8)))]
    method = METHODS["cub-4"].build(named, made(method="cub-4").spec)
    optimizer = LionCub(named)
    assert isinstance(method, VirtualLion)
    assert method.buckets[0].codec == optimizer.param_groups[0]["codec"]
    assert method.meeting is not None
    assert method.meeting.policy == optimizer._momentum_sync
