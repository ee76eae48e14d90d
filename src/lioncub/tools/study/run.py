"""``lioncub study``: every run that is not there yet, a few at a time."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from itertools import chain
from multiprocessing.queues import SimpleQueue
from time import monotonic

import torch
from rich.console import Console

from lioncub.errors import ConfigError
from lioncub.tools.reporting.extra import why_no_page
from lioncub.tools.reporting.grid import Grid
from lioncub.tools.reporting.lines import append_line
from lioncub.tools.reporting.machine import command_line
from lioncub.tools.reporting.progress import progress_bar
from lioncub.tools.study.config import EFFORT, StudyConfig
from lioncub.tools.study.effort import effort_tables
from lioncub.tools.study.errors import StudyError
from lioncub.tools.study.plan import remaining
from lioncub.tools.study.presets import PRESETS
from lioncub.tools.study.records import Run, Spec, read_runs
from lioncub.tools.study.tables import tables
from lioncub.tools.study.tasks import TASKS
from lioncub.tools.study.training import train

NONE_YET = "No runs of this experiment yet."

_ticks: SimpleQueue[int] | None = None


def run_study(config: StudyConfig, console: Console | None = None) -> list[Run]:
    """Make the runs that are missing, as long as there is time; returns all there are."""
    console = Console(stderr=True) if console is None else console
    preset = PRESETS[config.preset]
    config.out.mkdir(parents=True, exist_ok=True)
    known = known_runs(config)
    if config.run:
        known = _train(config, known, console)
    left, more = remaining(config.to_train, preset, known)
    if left:
        others = ", and those whose settings they search" if more else ""
        console.print(f"{len(left)} runs are left{others}: the same command goes on with them", highlight=False)
    show(config, known, console)
    return known


def _train(config: StudyConfig, known: list[Run], console: Console) -> list[Run]:
    """Make what is missing; returns all there are."""
    preset = PRESETS[config.preset]
    experiments = config.to_train
    for task in dict.fromkeys(task for experiment in experiments for task in experiment.tasks):
        data = TASKS[task].load().learned_from  # here, once: data that is missing is an error before anything starts
        if others := {run.data for run in known if run.spec.task == task} - {data}:
            raise StudyError(
                f"{task} would learn from {data} now, but there are runs that learned from {', '.join(others)}: they "
                f"cannot be compared. Take another --out, and no --records of theirs"
            )
    deadline = None if config.minutes is None else monotonic() + 60 * config.minutes
    with pool(config.jobs) as (workers, ticks), Bar(console) as bar:

        def todo() -> list[Spec]:
            left, _ = remaining(experiments, preset, known)
            bar.expect(left, len(known))
            return left

        for run in finished(workers, ticks, todo, config, deadline, bar):
            append_line(config.own_records, run.to_json())
            known.append(run)
            console.print(line(run), markup=False, highlight=False, soft_wrap=True)
    return known


def show(config: StudyConfig, runs: Sequence[Run], console: Console) -> None:
    """Print the tables; write the page, and the document if one is given."""
    preset = PRESETS[config.preset]
    grids = {name: tables(preset, [name], runs) for name in config.chosen}
    if not any(grids.values()):
        return
    if EFFORT in config.markers:
        grids[EFFORT] = effort_tables(preset, config.chosen, runs)
    for grid in chain.from_iterable(grids.values()):
        console.print(grid.to_rich())
    if problem := why_no_page():
        console.print(problem, markup=False, highlight=False, soft_wrap=True)
    else:
        from lioncub.tools.study.page import page  # here: what draws is an extra

        config.page_path.write_text(page(preset, config.chosen, runs), encoding="utf-8")
        console.print(f"The page: {config.page_path}", markup=False, highlight=False, soft_wrap=True)
    if config.docs is not None:
        document(config, runs, grids)


def document(config: StudyConfig, runs: Sequence[Run], grids: Mapping[str, Sequence[Grid]]) -> None:
    """Write the tables into the document, and draw its pictures."""
    assert config.docs is not None
    if problem := why_no_page():
        raise ConfigError(problem)
    from lioncub.tools.reporting.pictures import draw
    from lioncub.tools.study.plots import pictures

    preset = PRESETS[config.preset]
    drawings = {name: pictures(preset, [name], runs, prefix=f"study-{config.preset}") for name in config.chosen}
    for name, markers in config.markers.items():
        parts = [*drawings.get(name, ()), *grids[name]]
        markers.write(config.docs, "\n".join(part.to_markdown() for part in parts) or NONE_YET)
    if config.draw:
        draw(chain.from_iterable(drawings.values()), config.docs)


def known_runs(config: StudyConfig) -> list[Run]:
    paths = [*config.records, *([config.own_records] if config.own_records.exists() else [])]
    try:
        return read_runs(paths)
    except (OSError, ValueError) as error:
        raise StudyError(f"{error}; remove the line, or the file, and run the study again") from error


def finished(
    workers: ProcessPoolExecutor,
    ticks: SimpleQueue[int],
    todo: Callable[[], Sequence[Spec]],
    config: StudyConfig,
    deadline: float | None,
    bar: Bar,
) -> Iterator[Run]:
    """Runs as they end; no new one begins after the deadline.

    After each, what is left is asked for anew: a search that has ended makes the runs known that come of it.
    """
    running: dict[Future[Run], Spec] = {}
    command = command_line()
    while True:
        busy = {spec.key for spec in running.values()}
        waiting = [spec for spec in todo() if spec.key not in busy]
        while waiting and len(running) < config.jobs and not _over(deadline):
            spec = waiting.pop(0)
            running[workers.submit(make, spec, command, config.device)] = spec
        if not running:
            return
        done: set[Future[Run]] = set()
        while not done:
            done, _ = wait(running, timeout=0.5, return_when=FIRST_COMPLETED)
            while not ticks.empty():
                bar.advance(ticks.get())
        for future in done:
            bar.end(running.pop(future))
            yield future.result()


def make(spec: Spec, command: str, device: str) -> Run:
    """In a process of the pool."""
    cost = spec.workers * spec.examples
    return train(spec, command=command, device=device, on_step=lambda: _ticks.put(cost) if _ticks else None)


@contextmanager
def pool(jobs: int) -> Iterator[tuple[ProcessPoolExecutor, SimpleQueue[int]]]:
    context = multiprocessing.get_context("spawn")
    ticks: SimpleQueue[int] = context.SimpleQueue()
    executor = ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(ticks,))
    try:
        yield executor, ticks
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


def _begin(ticks: SimpleQueue[int]) -> None:
    global _ticks
    _ticks = ticks
    torch.set_num_threads(1)


class Bar:
    """How much of the examples has been seen, with the time left."""

    def __init__(self, console: Console) -> None:
        self.bar = progress_bar(console)
        self.task = self.bar.add_task("Training", total=None)
        self.done = 0

    def expect(self, todo: Sequence[Spec], done: int) -> None:
        total = self.done + sum(spec.num_examples for spec in todo)
        self.bar.update(self.task, total=total, description=f"{len(todo)} runs to do, {done} done")

    def end(self, spec: Spec) -> None:
        self.done += spec.num_examples

    def advance(self, amount: int) -> None:
        self.bar.advance(self.task, amount)

    def __enter__(self) -> Bar:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()


def line(run: Run) -> str:
    spec = run.spec
    what = "did not stay finite" if run.quality is None else f"{run.quality:.4g} {TASKS[spec.task].unit}"
    where = f"{spec.task}, {spec.workers} workers, seed {spec.seed}, lr {spec.lr:g}"
    return f"{where}: {run.label}: {what}, {run.bits_up:.3g} + {run.bits_down:.3g} bits, {run.seconds:.0f} s"


def _over(deadline: float | None) -> bool:
    return deadline is not None and monotonic() > deadline
