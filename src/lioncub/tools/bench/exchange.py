"""``lioncub bench exchange``: the time of an exchange on a slow network, against the least time of the wire."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from statistics import median

from rich.console import Console
from rich.progress import track

from lioncub.errors import ConfigError, LionCubError
from lioncub.records import to_json
from lioncub.tools.bench.exchange_config import MARKERS, ExchangeConfig, ExchangeTask
from lioncub.tools.lab import registry
from lioncub.tools.lab.config import LabConfig
from lioncub.tools.lab.isolation import Isolation, find_isolation
from lioncub.tools.lab.plan import INTERFACE, plan_of
from lioncub.tools.lab.rates import Rate
from lioncub.tools.lab.session import free_port, running
from lioncub.tools.reporting.docs import fenced
from lioncub.tools.reporting.grid import Grid
from lioncub.tools.reporting.machine import command_line, machine

WORKER = ("-m", "lioncub.tools.bench.exchange_worker")
REQUIRED = 1.15
"""Times the wire's own time, asked of the vote."""


@dataclass(frozen=True)
class ExchangeRecord:
    """The medians of one way at one rate."""

    way: str
    rate: str
    hosts: int
    numel: int
    seconds: float
    bytes_sent: int
    wire_seconds: float

    @classmethod
    def of(cls, line: dict[str, list[float]], way: str, rate: str, hosts: int, numel: int) -> ExchangeRecord:
        sent = int(median(line["bytes_sent"]))
        wire = sent * 8 / Rate.parse(rate).bits_per_second
        return cls(way, rate, hosts, numel, median(line["seconds"]), sent, wire)

    @property
    def ratio(self) -> float:
        return self.seconds / self.wire_seconds


def run_exchange(config: ExchangeConfig, console: Console | None = None) -> list[ExchangeRecord]:
    """Time every way at every rate; print a table; write ``exchange.jsonl``, and the docs where asked."""
    console = Console() if console is None else console
    isolation = find_isolation()
    if not isolation.networked:
        raise ConfigError(f"the exchange is timed on a slow network, and there is none here: {isolation.reason}")
    config.out.mkdir(parents=True, exist_ok=True)
    about = {**machine(), "command": command_line()}
    places = list(product(config.hosts, config.rates))
    shown = track(places, description="exchanging", console=console, transient=True)
    records = [record for hosts, rate in shown for record in at_place(hosts, rate, config, isolation)]
    lines = [json.dumps({**asdict(record), "ratio": record.ratio, **about}) + "\n" for record in records]
    config.records.write_text("".join(lines), encoding="utf-8")
    grid = table(records)
    console.print(grid.to_rich())
    console.print(str(config.records), highlight=False, soft_wrap=True)
    if config.docs is not None:
        where = f"Measured on {about['date']} at commit {about['commit'] or 'unknown'}: {about['cpu']}, "
        where += f"{about['cores']} cores, torch {about['torch']}; medians of {config.repeats} samples.\n\n"
        MARKERS.write(config.docs, f"{where}{fenced([command_line()])}\n\n{grid.to_markdown()}")
    return records


def at_place(hosts: int, rate: str, config: ExchangeConfig, isolation: Isolation) -> list[ExchangeRecord]:
    with registry.scratch() as scratch:
        told, answer, log = (scratch / name for name in ("task.json", "answer.jsonl", "lab.log"))
        told.write_text(to_json(ExchangeTask(config.numel, config.repeats, INTERFACE, str(answer))), encoding="utf-8")
        lab = LabConfig(command=(sys.executable, *WORKER, str(told)), hosts=hosts, rate=rate)
        plan = plan_of(lab, networked=True, port=free_port(isolation), ours=True)
        with log.open("wb") as output, running(plan, isolation, output) as process:
            code = process.wait()
        if code:
            said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise LionCubError(f"the hosts failed with exit code {code}: " + " | ".join(said[-3:]))
        lines = [json.loads(line) for line in answer.read_text(encoding="utf-8").splitlines()]
        return [ExchangeRecord.of(line, line["way"], rate, hosts, config.numel) for line in lines]


def table(records: Sequence[ExchangeRecord]) -> Grid:
    rows = [
        [
            record.way,
            record.rate,
            str(record.hosts),
            f"{record.bytes_sent / 1e6:.3f}",
            f"{record.seconds * 1e3:.1f}",
            f"{record.wire_seconds * 1e3:.1f}",
            f"{record.ratio:.2f}",
        ]
        for record in records
    ]
    headings = ["exchange", "link", "hosts", "MB sent", "ms", "wire, ms", "times the wire"]
    note = (
        "From a common start to the last host's end, without encoding and applying. The wire's time: the bytes that "
        f"the interface counted, over the link's rate. Asked of the vote: at most {REQUIRED} times."
    )
    return Grid("The exchange against the wire", headings, rows, note, num_texts=2)
