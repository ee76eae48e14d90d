"""The plots of a comparison."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import plotly.graph_objects as go

from lioncub.tools.compare.methods import BASELINE, COMPUTE_ALONE
from lioncub.tools.compare.records import Cell, Point
from lioncub.tools.report.comparison import Place, rank, rate_of, with_other_hosts, with_other_links
from lioncub.tools.reporting.page import COLOURS, drawn, figure

STYLES = {
    BASELINE: ("#3f8fd2", "dash"),
    "ddp-adamw": ("#7f86d6", "dash"),
    "ddp-adamw-fp16": ("#a58bd8", "dash"),
    "ddp-fp16": ("#4db3c8", "dash"),
    "ddp-powersgd": ("#7d97a8", "dash"),
    "server": ("#b05fc3", "dot"),
    "vote": ("#2ca58d", "solid"),
    "mean": ("#86ab3a", "solid"),
    "cub-1": ("#d9a520", "solid"),
    "cub-2": ("#ec8a2c", "solid"),
    "cub-4": ("#dd5f36", "solid"),
    "cub-8": ("#c03d5e", "solid"),
    COMPUTE_ALONE: ("#888888", "dot"),
}
SPLIT = {"compute": "#3f8fd2", "wait": "#e07b39", "update": "#2ca58d"}
LOG_FROM = 8.0
"""Axes are logarithmic where the ends of the curves are further apart than this factor."""

MOST_DECADES = 2.0
"""Up to so many, a logarithmic axis has labels at 1, 2 and 5, which lie on one another on a phone beyond."""


def loss_by_time(place: Place) -> go.Figure | None:
    return _losses(place, "seconds of training", "%{x:,.3~r} s", lambda point: point.seconds)


def loss_by_bytes(place: Place) -> go.Figure | None:
    return _losses(place, "bytes that host 0 sent", "%{x:.3~s}B", lambda point: point.bytes_sent)


def loss_by_step(place: Place) -> go.Figure | None:
    return _losses(place, "steps", "%{x:,} steps", lambda point: point.step)


def step_split(place: Place) -> go.Figure | None:
    """A bar for each method, the first on top; a line where compute alone would be."""
    cells = [cell for cell in place.timed if cell.method != COMPUTE_ALONE]
    if not cells:
        return None
    result = figure(
        xaxis={"title": {"text": "milliseconds a step"}, "tickformat": "~s"},
        yaxis={"automargin": True, "autorange": "reversed", "ticksuffix": " "},
        height=150 + 28 * len(cells),
    )
    result.update_layout(barmode="stack", bargap=0.3, legend_traceorder="normal")
    splits = [(cell, place.split(cell)) for cell in cells]
    for part, colour in SPLIT.items():
        known = [(cell, getattr(split, part)) for cell, split in splits if split]
        _add_bars(result, known, part, colour)
    _add_bars(result, [(cell, cell.step_seconds) for cell, split in splits if not split], "not split", "#888888")
    if ideal := place.cell(COMPUTE_ALONE):
        line = {"dash": "dot", "width": 2, "color": style(COMPUTE_ALONE)[0]}
        result.add_vline(x=ideal.step_seconds * 1e3, line=line)
        name = drawn(f"{ideal.label}: {ideal.step_seconds * 1e3:,.0f} ms")
        result.add_scatter(x=[None], y=[None], mode="lines", line=line, name=name)  # for the legend
    return result


def speedup_by_rate(place: Place, places: Sequence[Place]) -> go.Figure | None:
    """None where there is only one rate."""
    alike = with_other_links(place, places)
    rates = [rate_of(each.cells[0]) or 0.0 for each in alike]
    if len(set(rates)) < 2:
        return None
    ticks = {"tickvals": rates, "ticktext": [drawn(each.cells[0].link) for each in alike]}
    result = figure(
        xaxis={"title": {"text": "rate of each host's link"}, "type": "log", **ticks},
        yaxis={"title": {"text": "speedup over ddp-lion"}, "rangemode": "tozero"},
    )
    _add_lines(result, alike, rates, lambda where, cell: where.speedup(cell), "%{y:.3~r}x at %{x:.3~s}bit/s")
    return _decided(result, "y")


def step_by_hosts(place: Place, places: Sequence[Place]) -> go.Figure | None:
    """None where there is only one number of hosts."""
    alike = with_other_hosts(place, places)
    hosts = [each.cells[0].hosts for each in alike]
    if len(set(hosts)) < 2:
        return None
    result = figure(
        xaxis={"title": {"text": "hosts"}, "tickvals": hosts},
        yaxis={"title": {"text": "milliseconds a step"}, "rangemode": "tozero", "tickformat": "~s"},
    )
    _add_lines(result, alike, hosts, lambda _, cell: cell.step_seconds * 1e3, "%{y:,.3~r} ms, %{x} hosts")
    return _decided(result, "y")


def style(method: str) -> tuple[str, str]:
    """A method's colour and dash, the same in every plot."""
    return STYLES.get(method, (COLOURS[sum(method.encode()) % len(COLOURS)], "dashdot"))


def _losses(place: Place, title: str, hover: str, x: Callable[[Point], float]) -> go.Figure | None:
    """Validation losses without the untrained model's, which would dwarf the rest."""
    curves = [(cell, _validated(cell)) for cell in place.cells if cell.method != COMPUTE_ALONE and not cell.error]
    shown = [(cell, points) for cell, points in curves if points]
    if not shown:
        return None
    result = figure(
        xaxis={"title": {"text": title}, "tickformat": "~s"},
        yaxis={"title": {"text": drawn(f"validation loss, {shown[0][0].unit}")}},
    )
    for cell, points in shown:
        xs, ys = [x(point) for point in points], [point.validation_loss for point in points]
        _add_line(result, cell, xs, ys, f"%{{y:.3f}} after {hover}")
    return _decided(result, "x")


def _validated(cell: Cell) -> list[Point]:
    return [point for point in cell.points if point.step and point.validation_loss is not None]


def _add_lines(
    result: go.Figure,
    places: Sequence[Place],
    xs: Sequence[float],
    y: Callable[[Place, Cell], float | None],
    hover: str,
) -> None:
    """A line for each method that was timed at some of the places."""
    methods = dict.fromkeys(cell.method for place in places for cell in place.timed)
    for method in sorted(methods, key=rank):
        found = [(x, place, cell) for x, place in zip(xs, places, strict=True) if (cell := place.cell(method))]
        points = [(x, value) for x, place, cell in found if (value := y(place, cell)) is not None]
        if points:
            _add_line(result, found[0][2], [x for x, _ in points], [value for _, value in points], hover)


def _add_line(result: go.Figure, cell: Cell, xs: Sequence[float], ys: Sequence[float | None], hover: str) -> None:
    colour, dash = style(cell.method)
    result.add_scatter(
        uid=cell.method,  # a line that its reader has hidden stays hidden at the next place
        x=xs,
        y=ys,
        name=drawn(cell.label),
        mode="lines+markers",
        line={"color": colour, "dash": dash, "width": 2},
        marker={"size": 5},
        hovertemplate=hover,
    )


def _add_bars(result: go.Figure, lengths: Sequence[tuple[Cell, float]], name: str, colour: str) -> None:
    if lengths:
        result.add_bar(
            orientation="h",
            x=[seconds * 1e3 for _, seconds in lengths],
            y=[drawn(cell.label) for cell, _ in lengths],
            name=name,
            marker={"color": colour},
            hovertemplate="%{x:,.3~r} ms",
        )


def _decided(result: go.Figure, axis: str) -> go.Figure:
    """With a logarithmic axis where the curves' ends need one, and all values allow it."""
    curves = [[value for value in trace[axis] if value is not None] for trace in result.data]
    ends = [curve[-1] for curve in curves if curve]
    values = [value for curve in curves for value in curve]
    if ends and min(values) > 0 and max(ends) > LOG_FROM * min(ends):
        decades = math.log10(max(values) / min(values))
        crowded = axis == "x" and decades > MOST_DECADES
        ticks = math.ceil(decades / 6) if crowded else "D2"
        result.update_layout({f"{axis}axis": {"type": "log", "dtick": ticks}})
    result.update_layout(legend_uirevision="same")
    return result
