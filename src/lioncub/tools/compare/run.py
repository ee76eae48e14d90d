"""``lioncub compare``: every cell that is not there yet, place by place."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console

from lioncub.errors import ConfigError
from lioncub.records import to_json
from lioncub.tools.compare.config import CompareConfig, Condition, WorkerConfig
from lioncub.tools.compare.errors import CompareError
from lioncub.tools.compare.methods import BASELINE, COMPUTE_ALONE, METHODS
from lioncub.tools.compare.progress import MatrixProgress
from lioncub.tools.compare.records import Cell, Point, read_cells
from lioncub.tools.jobs import Job, load_job
from lioncub.tools.lab import registry
from lioncub.tools.lab.config import UNSHAPED, LabConfig
from lioncub.tools.lab.isolation import Isolation, find_isolation
from lioncub.tools.lab.plan import INTERFACE, plan_of
from lioncub.tools.lab.session import free_port, running
from lioncub.tools.reporting.lines import append_line
from lioncub.tools.reporting.machine import command_line, machine

POLL_SECONDS = 0.2
WORKER = ("-m", "lioncub.tools.compare.worker")
COPIED = (
    *("data", "unit", "examples_unit", "parameters", "lr", "weight_decay", "steps"),
    *("step_seconds", "update_seconds", "bytes_sent", "bytes_received", "bytes_planned"),
)
"""The fields that a cell takes unchanged from a host's last line about a method."""


def run_compare(config: CompareConfig, console: Console | None = None) -> list[Cell]:
    """Train what is missing in ``config.records``; all cells of the comparison, old and new."""
    console = Console() if console is None else console
    isolation = find_isolation()
    if not isolation.networked:
        console.print(
            f"UNSHAPED: all hosts share loopback, so rates mean nothing here. {isolation.reason}", markup=False
        )
        config = replace(config, rates=(UNSHAPED,))
    job = load_job(config.job, text=config.data)
    config = replace(config, data=job.data)
    check_examples(job, config)
    make_writable(config)
    compared = Comparison(config, isolation, job)
    todo = {condition: compared.todo(condition) for condition in config.conditions()}
    total = len(config.conditions()) * len(config.methods)
    with MatrixProgress(console, total, total - sum(map(len, todo.values()))) as progress:
        for condition, methods in todo.items():
            compared.train(condition, methods, progress)
    return compared.cells()


def make_writable(config: CompareConfig) -> None:
    """Before anything is trained: a place for what comes of it."""
    try:
        config.out.mkdir(parents=True, exist_ok=True)
        with config.records.open("ab"):
            pass
    except OSError as error:
        raise CompareError(f"{config.records} cannot be written: {error.strerror}; choose another --out") from error


def check_examples(job: Job, config: CompareConfig) -> None:
    """Before any host is started: whether batches of this size can be drawn, and every host has a share to validate."""
    for examples in config.examples:
        job.check(examples)
        if config.validations:
            sequences = len(job.validation(config.validation_examples, batch=examples)[0])
            if sequences < max(config.hosts):
                raise ConfigError(f"{sequences} examples to validate cannot be shared by {max(config.hosts)} hosts")


class Comparison:
    """The cells of one comparison, in the file that they live in."""

    def __init__(self, config: CompareConfig, isolation: Isolation, job: Job) -> None:
        self.config, self.isolation, self.job = config, isolation, job
        self.machine = machine()
        self.command = command_line()
        self.run = f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M:%S} UTC {secrets.token_hex(3)}"

    def cells(self) -> list[Cell]:
        """Those with these settings on this machine, by this commit; the file may hold others."""
        try:
            cells = read_cells(self.config.records)
        except (OSError, ValueError) as error:
            raise CompareError(f"{error}; remove the line, or choose another --out") from error
        mine = (self.settings(), undated(self.machine))
        return [cell for cell in cells if (cell.settings, undated(cell.machine)) == mine]

    def settings(self) -> dict[str, Any]:
        """The key of resuming: also what the hosts stand on."""
        stands_on = {
            "network": "namespaces" if self.isolation.networked else "loopback",
            "omp_num_threads": os.environ.get("OMP_NUM_THREADS", ""),
        }
        return dict(json.loads(json.dumps(self.config.settings() | stands_on)))

    def todo(self, condition: Condition) -> list[str]:
        """The methods that are missing; and where others are there, what figures are held against, in this run too."""
        place = self.blank("", condition).place
        there = {cell.method for cell in self.cells() if cell.place == place and not cell.error}
        missing = set(self.config.methods) - there
        measured = missing | {BASELINE, COMPUTE_ALONE} if missing else missing
        return [method for method in METHODS if method in measured and method in self.config.methods]

    def blank(self, method: str, condition: Condition) -> Cell:
        """A cell without figures."""
        rates = (condition.rate,) * condition.hosts if self.isolation.networked and condition.rate != "none" else ()
        return Cell(
            method=method,
            label=METHODS[method] if method else "",
            job=self.config.job,
            unit=self.job.unit,
            hosts=condition.hosts,
            rates=rates,
            examples=condition.examples,
            examples_unit=self.job.examples_unit,
            parameters=0,
            seed=self.config.seed,
            lr=0.0,
            weight_decay=0.0,
            settings=self.settings(),
            machine=self.machine,
            command=self.command,
            run=self.run,
        )

    def train(self, condition: Condition, methods: Sequence[str], progress: MatrixProgress) -> None:
        """Train all methods in the same processes, and those after a method that failed in new ones."""
        while methods:
            done = list(self.session(condition, methods, progress))
            if not done:
                raise CompareError(f"the hosts ended without a word about {METHODS[methods[0]]}")
            methods = methods[len(done) :]

    def session(self, condition: Condition, methods: Sequence[str], progress: MatrixProgress) -> Iterator[Cell]:
        """Run one lab until its methods are trained or one has failed; the cells that came of it."""
        with registry.scratch() as scratch:
            journal, log = scratch / "journal.jsonl", scratch / "lab.log"
            journal.touch()
            told = WorkerConfig(
                settings=self.config.settings(),
                methods=tuple(methods),
                examples=condition.examples,
                interface=INTERFACE if self.isolation.networked else "",
                journal=str(journal),
            )
            (scratch / "config.json").write_text(to_json(told), encoding="utf-8")
            command = (sys.executable, *WORKER, str(scratch / "config.json"))
            lab = LabConfig(command=command, hosts=condition.hosts, rate=condition.rate)
            plan = plan_of(lab, networked=self.isolation.networked, port=free_port(self.isolation), ours=True)
            current = methods[0]
            with log.open("wb") as output, running(plan, self.isolation, output) as process, journal.open() as lines:
                for event in events(lines, lambda: process.poll() is None):
                    if event["kind"] == "begin":
                        current = event["method"]
                        progress.begin(f"{METHODS[current]}, {condition.title}")
                    elif event["kind"] == "step":
                        progress.within(event["step"] / event["total"] if event["total"] else 0.0)
                    else:
                        yield self.keep(self.filled(event, condition), progress)
                        current = ""
            if process.returncode and current:
                yield self.keep(
                    replace(self.blank(current, condition), error=failure(log, process.returncode)), progress
                )

    def filled(self, event: dict[str, Any], condition: Condition) -> Cell:
        given = {name: event[name] for name in COPIED}
        return replace(
            self.blank(event["method"], condition),
            step_seconds_quartiles=(event["lower"], event["upper"]),
            points=tuple(Point(**point) for point in event["points"]),
            **given,
        )

    def keep(self, cell: Cell, progress: MatrixProgress) -> Cell:
        """On disk before anything else happens."""
        append_line(self.config.records, cell.to_json())
        progress.end(cell)
        return cell


def undated(machine: Mapping[str, Any]) -> dict[str, Any]:
    """All facts of the machine but their time."""
    return {name: value for name, value in machine.items() if name != "date"}


def events(lines: TextIO, alive: Callable[[], bool]) -> Iterator[dict[str, Any]]:
    """The journal's lines as they come, until the lab has ended."""
    unfinished = ""
    while True:
        running_still = alive()
        *complete, unfinished = (unfinished + lines.read()).split("\n")
        yield from map(json.loads, complete)
        if not running_still:
            return
        time.sleep(POLL_SECONDS)


def failure(log: Path, code: int) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    telling = [line for line in lines if "rror" in line] or lines or ["it said nothing"]
    return f"exit code {code}: " + " | ".join(telling[-3:])[:1000]
