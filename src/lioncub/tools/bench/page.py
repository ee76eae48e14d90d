"""The benchmark's page: bars, and the tables under them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import plotly.graph_objects as go

from lioncub.tools.bench.docs import sentence
from lioncub.tools.bench.records import Record
from lioncub.tools.reporting.grid import Grid
from lioncub.tools.reporting.page import COLOURS, Plot, document, drawn, figure


def page(records: Sequence[Record], grids: Sequence[Grid], about: Mapping[str, object]) -> str:
    """The whole document: kernels against the ceiling, steps in milliseconds, and the tables."""
    figures: list[Plot] = []
    shown = [record for record in records if record.group in ("kernel", "step")]
    for model, threads in dict.fromkeys((record.model, record.threads) for record in shown):
        chosen = [record for record in shown if (record.model, record.threads) == (model, threads)]
        drawing = (
            bars(
                chosen, f"{model}, threads: {threads}, milliseconds a step", lambda record: record.median_seconds * 1e3
            )
            if model
            else bars(chosen, f"threads: {threads}, percent of the memory ceiling", lambda record: record.percent)
        )
        figures.append(Plot(name=f"plot-{len(figures)}", views=[drawing]))
    return document(
        "bench.html",
        "lioncub bench kernels",
        "Kernels",
        sentence=sentence(about),
        command=str(about["command"]),
        figures=figures,
        grids=grids,
    )


def bars(records: Sequence[Record], title: str, length: Callable[[Record], float]) -> go.Figure:
    """A bar for each record, the first on top; a colour for each body."""
    labels = [label(record) for record in records]
    result = figure(
        xaxis={"title": {"text": drawn(title)}},
        yaxis={"automargin": True, "categoryorder": "array", "categoryarray": labels[::-1]},
        height=160 + 22 * len(labels),
    )
    result.update_layout(barmode="overlay")
    for number, body in enumerate(dict.fromkeys(record.body for record in records)):
        chosen = [record for record in records if record.body == body]
        result.add_bar(
            orientation="h",
            x=[length(record) for record in chosen],
            y=[label(record) for record in chosen],
            name=drawn(body or "others"),
            marker={"color": COLOURS[number % len(COLOURS)]},
        )
    return result


def label(record: Record) -> str:
    return drawn(f"{record.name} · {record.body}" if record.body else record.name)
