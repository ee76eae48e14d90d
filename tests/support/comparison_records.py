"""Cells of a comparison that never ran, with figures as a real one has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from lioncub.records import Plain
from lioncub.tools.compare.methods import COMPUTE_ALONE
from lioncub.tools.compare.records import Cell, Point

PARAMETERS = 10_000_000
LINKS = {"100mbit": 1e8, "300mbit": 3e8, "1gbit": 1e9}
COMPUTE_SECONDS = {16: 0.11, 128: 0.31, 512: 0.94}


@dataclass(frozen=True, kw_only=True)
class Method:
    label: str
    bits: float  # per parameter, up and down
    floor: float  # the loss it tends to
    server: bool = False


METHODS = {
    "ddp-lion": Method(label="DDP Lion", bits=64, floor=1.38),
    "ddp-adamw": Method(label="DDP AdamW", bits=64, floor=1.42),
    "ddp-adamw-fp16": Method(label="DDP AdamW float16", bits=32, floor=1.42),
    "ddp-fp16": Method(label="DDP Lion float16", bits=32, floor=1.38),
    "ddp-powersgd": Method(label="DDP Lion PowerSGD", bits=3, floor=1.47),
    "server": Method(label="Distributed Lion server", bits=2, floor=1.42, server=True),
    "vote": Method(label="Distributed Lion vote", bits=2, floor=1.42),
    "mean": Method(label="Distributed Lion mean", bits=4, floor=1.41),
    "cub-1": Method(label="Lion Cub 1 bit", bits=2.3, floor=1.41),
    "cub-2": Method(label="Lion Cub 2 bits", bits=3.3, floor=1.40),
    "cub-4": Method(label="Lion Cub 4 bits", bits=5.3, floor=1.385),
    "cub-8": Method(label="Lion Cub 8 bits", bits=9.3, floor=1.38),
    COMPUTE_ALONE: Method(label="Compute alone", bits=0, floor=0),
}
MACHINE: dict[str, Plain] = {
    "cpu": "A processor",
    "cores": 2,
    "torch": "2.13.0",
    "commit": "0123456789ab",
    "date": "2026-01-02 03:04 UTC",
}


def cell(method: str = "vote", *, link: str = "100mbit", hosts: int = 4, examples: int = 128, **given: Any) -> Cell:
    """One cell; what is given replaces what was made up."""
    made = METHODS[method]
    compute, update = COMPUTE_SECONDS[examples], 0.012
    sent = PARAMETERS * made.bits / 8 * (hosts - 1) / hosts * (hosts if made.server else 1)
    seconds = compute + update + max(0.0, sent * 8 / LINKS[link] - 0.4 * compute) + 0.004 * (made.bits > 0)
    points = [] if method == COMPUTE_ALONE else curve(made, seconds, sent, hosts * examples)
    result = Cell(
        method=method,
        label=made.label,
        job="gpt-10m",
        unit="nats per byte",
        hosts=hosts,
        rates=(link,) * hosts,
        examples=examples,
        examples_unit="tokens",
        parameters=PARAMETERS,
        seed=0,
        lr=1e-3,
        weight_decay=0.1,
        steps=200,
        step_seconds=seconds,
        step_seconds_quartiles=(0.98 * seconds, 1.03 * seconds),
        update_seconds=update,
        bytes_sent=sent,
        bytes_received=sent,
        bytes_planned=0.99 * sent,
        points=tuple(points),
        machine=MACHINE,
        command="lioncub compare --hosts 4",
        run="2026-01-02 03:04:05 UTC 0a1b2c",
    )
    return replace(result, **given)


def curve(method: Method, seconds: float, sent: float, batch: int, steps: int = 200) -> list[Point]:
    """Twenty-one points of a loss that falls from the untrained model's towards the method's floor."""
    return [
        Point(
            step=step,
            seconds=step * seconds,
            bytes_sent=round(step * sent),
            train_loss=None if step == 0 else loss + 0.01,
            validation_loss=loss,
        )
        for step in range(0, steps + 1, steps // 20)
        for loss in [method.floor + (5.545 - method.floor) * math.exp(-((step * batch / 512) ** 0.55) / 3.2)]
    ]


def cells(
    links: Sequence[str] = tuple(LINKS), hosts: Sequence[int] = (4,), examples: Sequence[int] = tuple(COMPUTE_SECONDS)
) -> list[Cell]:
    """Every method at every place."""
    chosen = product(METHODS, links, hosts, examples)
    return [cell(method, link=link, hosts=count, examples=many) for method, link, count, many in chosen]
