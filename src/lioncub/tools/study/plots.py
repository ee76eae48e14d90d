"""A study's results as figures: quality against bits, agreement and workers, loss curves."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, quantiles
from typing import Any

import plotly.graph_objects as go

from lioncub.tools.reporting.page import COLOURS, drawn, figure
from lioncub.tools.reporting.pictures import Picture
from lioncub.tools.study.presets import Preset
from lioncub.tools.study.records import Run
from lioncub.tools.study.results import Sample, grouped, rates_vary, views
from lioncub.tools.study.tasks import TASKS

DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star")
BITS = (1, 2, 3, 4, 5, 6, 8, 10, 16, 24, 32, 48, 64)
SETTLED = 0.1
"""Loss curves are shown at the height they have after this part of the steps."""


@dataclass(frozen=True)
class PlotKind:
    """A plot that each experiment can have on each task."""

    caption: str
    draw: Callable[[Sequence[Sample]], go.Figure | None]
    """None where there is nothing to see."""


def quality_by_bits(found: Sequence[Sample]) -> go.Figure | None:
    """A point for each method, with its standard error, at the number of workers that most were run with."""
    axis = {"title": {"text": "bits up and down, per parameter and step"}, "type": "log", "tickvals": list(BITS)}
    return _points(found, lambda sample: sample.bits, axis)


def quality_by_agreement(found: Sequence[Sample]) -> go.Figure | None:
    """The same, against how often a method's outcome has the sign of the exact average."""
    places = [100 * sample.agreement for sample in _usual(found) if sample.agreement is not None]
    axis = {"title": {"text": "coordinates whose outcome has the exact sign, mean over tensors, %"}}
    return _points(found, lambda sample: sample.agreement and 100 * sample.agreement, axis | _frame(places))


def quality_by_workers(found: Sequence[Sample]) -> go.Figure | None:
    """None where there is only one number of workers."""
    found = _plain(found)
    counts = sorted({sample.one.spec.workers for sample in found})
    if len(counts) < 2:
        return None
    result = figure(
        xaxis={"title": {"text": "workers"}, "type": "log", "tickvals": counts},
        yaxis=_quality_axis(found),
    )
    for label, own in grouped(found).items():
        points = sorted(((s.one.spec.workers, s) for s in own if s.quality is not None), key=lambda point: point[0])
        result.add_scatter(
            x=[workers for workers, _ in points],
            y=[sample.quality for _, sample in points],
            error_y={"array": [sample.error or 0.0 for _, sample in points]},
            mode="lines+markers",
            line=_line(label, found),
            name=drawn(label),
        )
    return result


def loss_by_step(found: Sequence[Sample]) -> go.Figure | None:
    """The mean over seeds and a band from the least to the greatest."""
    here = [sample for sample in _usual(found) if not sample.failed]
    if not here:
        return None
    means = [_along(sample, fmean) for sample in here]
    low, high = min(map(min, means)), max(mean[int(SETTLED * len(mean))] for mean in means)
    room = 0.05 * (high - low)
    result = figure(
        xaxis={"title": {"text": "step"}},
        yaxis={"title": {"text": "training loss, nats"}, "range": [low - room, high + room]},
    )
    for sample, mean in zip(here, means, strict=True):
        label = sample.one.label
        line = _line(label, found)
        steps = [sample.one.spec.steps * (k + 1) / len(mean) for k in range(len(mean))]
        if len(sample.runs) > 1:
            result.add_scatter(
                x=[*steps, *reversed(steps)],
                y=[*_along(sample, max), *reversed(_along(sample, min))],
                fill="toself",
                fillcolor=line["color"],
                opacity=0.15,
                line={"width": 0},
                hoverinfo="skip",
                showlegend=False,
            )
        result.add_scatter(x=steps, y=mean, mode="lines", line=line, name=drawn(label))
    return result


PLOTS: dict[str, PlotKind] = {
    "bits": PlotKind("Quality against bits", quality_by_bits),
    "agreement": PlotKind("Quality against agreement with the exact sign", quality_by_agreement),
    "workers": PlotKind("Quality against workers", quality_by_workers),
    "losses": PlotKind("Training loss", loss_by_step),
}


def pictures(preset: Preset, names: Sequence[str], runs: Sequence[Run], *, prefix: str) -> list[Picture]:
    """The figures that documents show, by the experiments' own choice."""
    return [
        Picture(
            name=f"{prefix}-{view.name}-{view.task}-{name}", caption=f"{view.title}: {kind.caption}", figure=drawing
        )
        for view in views(preset, names, runs)
        for name, kind in PLOTS.items()
        if name in view.experiment.pictures and (drawing := kind.draw(view.found)) is not None
    ]


def usual_workers(found: Sequence[Sample]) -> int:
    """The number of workers that most samples have; of several, the one next to 8."""
    counts = [sample.one.spec.workers for sample in found]
    return min(counts, key=lambda count: (-counts.count(count), abs(count - 8)))


def _points(
    found: Sequence[Sample], place: Callable[[Sample], float | None], xaxis: dict[str, Any]
) -> go.Figure | None:
    """Methods by quality, the best first; those that differ in bits alone are joined, full precision is a line."""
    here = [sample for sample in _usual(found) if sample.quality is not None and place(sample) is not None]
    if len(here) < 2:
        return None
    ends = [end for sample in here for end in _ends(sample)]
    result = figure(xaxis=xaxis, yaxis=_quality_axis(found) | _frame(ends))
    here.sort(key=lambda sample: sample.quality or 0.0, reverse=TASKS[found[0].one.spec.task].higher_is_better)
    for name, own in grouped(here, _family).items():
        points = sorted(own, key=lambda sample: place(sample) or 0.0)
        result.add_scatter(
            x=[place(sample) for sample in points],
            y=[sample.quality for sample in points],
            error_y={"array": [sample.error or 0.0 for sample in points], "thickness": 1},
            mode="lines+markers",
            line={"width": 1},
            marker=_marker(name, found),
            text=[drawn(sample.one.label) for sample in points],
            name=drawn(name if len(own) > 1 else own[0].one.label),
        )
    for sample in here:
        if sample.is_full_precision:
            result.add_hline(y=sample.quality, line={"dash": "dot", "width": 1, "color": "gray"})
    return _with_outsiders(result, here, place)


def _with_outsiders(result: go.Figure, found: Sequence[Sample], place: Callable[[Sample], float | None]) -> go.Figure:
    """Name those that are outside the frame."""
    lost = [
        sample.one.label
        for sample in found
        if _is_outside(sample.quality, result.layout.yaxis) or _is_outside(place(sample), result.layout.xaxis)
    ]
    if lost:
        result.add_annotation(
            text=drawn(f"outside: {'; '.join(lost)}"),
            xref="paper", yref="paper", x=0.01, y=0.99, xanchor="left", yanchor="top", showarrow=False,
        )  # fmt: skip
    return result


def _is_outside(value: float | None, axis: Any) -> bool:
    return value is not None and axis.range is not None and not axis.range[0] <= value <= axis.range[1]


def _quality_axis(found: Sequence[Sample]) -> dict[str, Any]:
    return {"title": {"text": drawn(TASKS[found[0].one.spec.task].unit)}}


def _ends(sample: Sample) -> tuple[float, float]:
    """Of its error bar."""
    middle, error = sample.quality or 0.0, sample.error or 0.0
    return middle - error, middle + error


def _frame(values: Sequence[float]) -> dict[str, Any]:
    """An axis for all of them but those that are far off, by Tukey's rule: one method that fails hides the others."""
    if len(values) < 4:
        return {}
    low, _, high = quantiles(values, n=4)
    reach = 1.5 * (high - low)
    first, last = max(min(values), low - reach), min(max(values), high + reach)
    room = 0.05 * (last - first)
    return {"range": [first - room, last + room]}


def _plain(found: Sequence[Sample]) -> list[Sample]:
    """Those whose workers see the same data; none where rates vary: one point of a method would not stand for it."""
    return [] if rates_vary(found) else [sample for sample in found if sample.one.spec.skew is None]


def _usual(found: Sequence[Sample]) -> list[Sample]:
    return [sample for sample in _plain(found) if sample.one.spec.workers == usual_workers(found)]


def _family(sample: Sample) -> str:
    """What a method is apart from its number of bits."""
    return re.sub(r"\d+ bits, ", "", sample.one.label)


def _marker(family: str, found: Sequence[Sample]) -> dict[str, Any]:
    """A family's colour and symbol, the same in every plot of points."""
    place = list(dict.fromkeys(map(_family, found))).index(family)
    return {"color": COLOURS[place % len(COLOURS)], "symbol": SYMBOLS[place // len(COLOURS) % len(SYMBOLS)], "size": 9}


def _line(label: str, found: Sequence[Sample]) -> dict[str, Any]:
    """A method's colour and dash, the same in every plot of lines."""
    place = list(dict.fromkeys(sample.one.label for sample in found)).index(label)
    return {"color": COLOURS[place % len(COLOURS)], "dash": DASHES[place // len(COLOURS) % len(DASHES)]}


def _along(sample: Sample, take: Callable[[list[float]], float]) -> list[float]:
    return [take(list(values)) for values in zip(*(run.train_losses for run in sample.runs), strict=False)]
