"""The plots: one HTML file that needs nothing but itself."""

from collections.abc import Callable, Sequence

import plotly.graph_objects as go

from lioncub.demo.config import METHODS
from lioncub.demo.records import Step, Summary
from lioncub.demo.table import HEADINGS, NOTE, cells
from lioncub.report.grid import Grid, paragraph
from lioncub.report.page import COLOURS, Plot, document, drawn, figure, plots

DASHES = ("solid", "dash", "dot")


def page(runs: Sequence[Sequence[Step]], summaries: Sequence[Summary], title: str, closing: str) -> str:
    """The whole document: loss against time, loss against bytes, and the table."""
    figures = [
        Plot(name="time", views=[plot(runs, "seconds of training", "linear", lambda step: step.seconds)]),
        Plot(name="bytes", views=[plot(runs, "bytes sent per worker", "log", lambda step: step.bytes_sent)]),
    ]
    table = Grid("", HEADINGS, [cells(summary) for summary in summaries], NOTE)
    parts = [paragraph(title), plots(figures), table.to_html(), paragraph(closing)]
    return document("lioncub demo", "A byte-level GPT, trained three ways", parts)


def plot(runs: Sequence[Sequence[Step]], title: str, axis: str, x: Callable[[Step], float]) -> go.Figure:
    """Validation loss of every run against `x`, without the untrained model, which would dwarf the rest."""
    result = figure(
        xaxis={"title": {"text": title}, "type": axis, "tickformat": "~s"},
        yaxis={"title": {"text": "validation loss, nats per byte"}},
    )
    for number, steps in enumerate(runs):
        shown = [step for step in steps if step.validation_loss is not None and step.step]
        result.add_scatter(
            x=[x(step) for step in shown],
            y=[step.validation_loss for step in shown],
            name=drawn(METHODS.get(steps[0].method, steps[0].method)),
            mode="lines+markers",
            line={"color": COLOURS[number % len(COLOURS)], "dash": DASHES[number % len(DASHES)]},
        )
    return result
