"""The benchmark from end to end: time every case, then show and keep the results."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryFile

import torch
from rich.console import Console

from lioncub.errors import ConfigError
from lioncub.tools.bench.cases import Case, cpu_bodies
from lioncub.tools.bench.ceilings import ceiling_cases
from lioncub.tools.bench.config import BenchConfig
from lioncub.tools.bench.docs import sentence, write_docs
from lioncub.tools.bench.kernel_cases import kernel_cases
from lioncub.tools.bench.measure import Timing, measure, pooled
from lioncub.tools.bench.progress import BenchProgress
from lioncub.tools.bench.records import Record, records_of
from lioncub.tools.bench.shapes import MODELS, shrunk
from lioncub.tools.bench.small_cases import small_cases
from lioncub.tools.bench.step_cases import missing_rivals, step_cases
from lioncub.tools.bench.tables import tables
from lioncub.tools.reporting.extra import why_no_page
from lioncub.tools.reporting.machine import command_line, machine


def run_bench(config: BenchConfig, console: Console | None = None) -> list[Record]:
    """Time everything; print tables; write `kernels.jsonl` and `kernels.html` into `config.out`."""
    console = Console() if console is None else console
    make_room(config.out)
    bodies, reasons = cpu_bodies()
    left_out = reasons | missing_rivals()
    about = describe(config)
    console.print(sentence(about), highlight=False)
    for name, reason in left_out.items():
        console.print(f"Left out: {name}, {reason}", highlight=False)
    if config.in_cache:
        console.print(
            f"{config.numel:,} elements fit in this machine's caches: figures are not the memory's", style="yellow"
        )
    with BenchProgress(console) as progress:
        records = timed(config, bodies, progress)
    grids = tables(records)
    for grid in grids:
        console.print(grid.to_rich())
    console.print(str(keep(config.out, lines(about, records, left_out))), highlight=False, soft_wrap=True)
    if problem := why_no_page():
        console.print(problem, markup=False, highlight=False, soft_wrap=True)
    else:
        from lioncub.tools.bench.page import page  # here: what draws is an extra

        page_path = config.out / "kernels.html"
        page_path.write_text(page(records, grids, about), encoding="utf-8")
        console.print(str(page_path), highlight=False, soft_wrap=True)
    if config.docs is not None:
        write_docs(config.docs, about, grids)
    return records


def make_room(out: Path) -> None:
    """Find out now, not after minutes of measuring, whether results can be written."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=out):
            pass
    except OSError as problem:
        raise ConfigError(f"out={out}: cannot be written to ({problem.strerror}); choose another folder") from problem


def describe(config: BenchConfig) -> dict[str, object]:
    """The conditions of all figures of a run; the load is the number of other runnable processes at its start."""
    sizes = {"kernel_numel": config.numel, "repeats": config.repeats, "rounds": config.rounds, "quick": config.quick}
    return {**machine(), "load": round(os.getloadavg()[0], 2), "command": command_line(), **sizes}


def parts(config: BenchConfig, bodies: Sequence[str]) -> Iterator[list[Case]]:
    """Cases that are timed in turn, each lot with the ceilings among them, made when its turn comes."""
    yield [*kernel_cases(config, bodies), *small_cases(config.tiny_tensors, bodies)]
    ceilings = ceiling_cases(torch.rand(config.numel), torch.rand(config.numel))
    for model, shapes in MODELS.items():
        steps = step_cases(model, shrunk(shapes(), config.shrink), bodies)
        yield [*(replace(ceiling, model=model) for ceiling in ceilings), *steps]


def timed(config: BenchConfig, bodies: Sequence[str], progress: BenchProgress) -> list[Record]:
    """Every part with every number of threads, round after round, each with tensors of its own."""
    taken: dict[tuple[str, int], list[list[Timing]]] = {}
    for number in range(1, config.rounds + 1):
        for cases in parts(config, bodies):
            for threads in config.threads:
                title = f"{cases[0].model or 'Kernels'}, threads: {threads}, round {number} of {config.rounds}"
                on_sample = progress.part(title, len(cases) * (config.repeats + 1))
                timings = measure(cases, threads, config.repeats, on_sample)
                # What a case runs would keep its tensors alive.
                light = [replace(timing, case=replace(timing.case, run=_done)) for timing in timings]
                taken.setdefault((cases[0].model, threads), []).append(light)
    return [record for rounds in taken.values() for record in records_of(pooled(rounds))]


def _done(_: int) -> None:
    """A case that does nothing, in place of one that has been timed."""


def lines(about: Mapping[str, object], records: Sequence[Record], left_out: Mapping[str, str]) -> Iterator[str]:
    """JSON objects: a "case" each, and what was "left-out"."""
    for record in records:
        yield json.dumps({"kind": "case", **asdict(record), **about}, allow_nan=False)
    for name, reason in left_out.items():
        yield json.dumps({"kind": "left-out", "name": name, "reason": reason, **about})


def keep(out: Path, records: Iterator[str]) -> Path:
    """Write the records and return where they are."""
    path = out / "kernels.jsonl"
    out.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in records), encoding="utf-8")
    return path
