"""A study's results as one page: quality against bits and workers, loss curves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

import plotly.graph_objects as go

from lioncub.publish.grid import paragraph
from lioncub.publish.page import COLOURS, Plot, chooser, document, drawn, figure, plots
from lioncub.study.presets import Preset
from lioncub.study.records import Run
from lioncub.study.results import Sample, of_experiment
from lioncub.study.tables import table
from lioncub.study.tasks import TASKS

DASHES = ("solid", "dash", "dot", "dashdot")


def page(preset: Preset, names: Sequence[str], runs: Sequence[Run]) -> str:
    """Each experiment on each task is a view of it."""
    views = [
        (f"{name}, {task}", preset.experiments[name].question, here)
        for name in names
        for task in preset.experiments[name].tasks
        if (here := _of_task(of_experiment(preset.experiments[name], preset, runs), task))
    ]
    shown = [here for _, _, here in views]
    parts = [
        chooser("Experiment", [title for title, _, _ in views]),
        *(paragraph(question, "lead", view) for view, (_, question, _) in enumerate(views)),
        plots(
            [
                Plot(name="bits", views=[quality_by_bits(here) for here in shown], caption="Quality against bits"),
                Plot(
                    name="workers",
                    views=[quality_by_workers(here) for here in shown],
                    caption="Quality against workers",
                ),
                Plot(name="losses", views=[loss_by_step(here) for here in shown], caption="Training loss"),
            ]
        ),
        *(
            f'<div data-view="{view}">{table(title, here).to_html()}</div>\n'
            for view, (title, _, here) in enumerate(views)
        ),
    ]
    return document("lioncub: does it learn as well?", "Does it learn as well?", parts)


def quality_by_bits(found: Sequence[Sample]) -> go.Figure | None:
    """A point for each method, with its standard error, at the number of workers that most were run with."""
    here = [
        sample for sample in found if sample.one.spec.workers == usual_workers(found) and sample.quality is not None
    ]
    if not here:
        return None
    result = figure(
        xaxis={"title": {"text": "bits up and down, per parameter and step"}, "type": "log"},
        yaxis={"title": {"text": drawn(TASKS[found[0].one.spec.task].unit)}},
    )
    for sample in here:
        colour, _ = style(sample.one.label, found)
        result.add_scatter(
            x=[sample.bits],
            y=[sample.quality],
            error_y={"array": [sample.error or 0.0]},
            mode="markers",
            marker={"color": colour, "size": 10},
            name=drawn(sample.one.label),
        )
    return result


def quality_by_workers(found: Sequence[Sample]) -> go.Figure | None:
    """None where there is only one number of workers."""
    counts = sorted({sample.one.spec.workers for sample in found})
    if len(counts) < 2:
        return None
    result = figure(
        xaxis={"title": {"text": "workers"}, "type": "log", "tickvals": counts},
        yaxis={"title": {"text": drawn(TASKS[found[0].one.spec.task].unit)}},
    )
    for label, own in _by_label(found):
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
    here = [sample for sample in found if sample.one.spec.workers == usual_workers(found) and not sample.failed]
    if not here:
        return None
    result = figure(
        xaxis={"title": {"text": "step"}},
        yaxis={"title": {"text": "training loss, nats"}},
    )
    for sample in here:
        label = sample.one.label
        steps = [
            sample.one.spec.steps * (k + 1) / len(sample.one.train_losses) for k in range(len(sample.one.train_losses))
        ]
        colour, _ = style(label, found)
        if len(sample.runs) > 1:
            low, high = _along(sample, min), _along(sample, max)
            result.add_scatter(
                x=[*steps, *reversed(steps)],
                y=[*high, *reversed(low)],
                fill="toself",
                fillcolor=colour,
                opacity=0.15,
                line={"width": 0},
                hoverinfo="skip",
                showlegend=False,
            )
        result.add_scatter(x=steps, y=_along(sample, fmean), mode="lines", line=_line(label, found), name=drawn(label))
    return result


def usual_workers(found: Sequence[Sample]) -> int:
    """The number of workers that most samples have; of several, the one next to 8."""
    counts = [sample.one.spec.workers for sample in found]
    return min(counts, key=lambda count: (-counts.count(count), abs(count - 8)))


def style(label: str, found: Sequence[Sample]) -> tuple[str, str]:
    """A method's colour and dash, the same in every plot of a view."""
    place = list(dict.fromkeys(sample.one.label for sample in found)).index(label)
    return COLOURS[place % len(COLOURS)], DASHES[place // len(COLOURS) % len(DASHES)]


def _line(label: str, found: Sequence[Sample]) -> dict[str, object]:
    colour, dash = style(label, found)
    return {"color": colour, "dash": dash}


def _by_label(found: Sequence[Sample]) -> list[tuple[str, list[Sample]]]:
    labels = dict.fromkeys(sample.one.label for sample in found)
    return [(label, [sample for sample in found if sample.one.label == label]) for label in labels]


def _along(sample: Sample, take: Callable[[list[float]], float]) -> list[float]:
    return [take(list(values)) for values in zip(*(run.train_losses for run in sample.runs), strict=False)]


def _of_task(found: Sequence[Sample], task: str) -> list[Sample]:
    return [sample for sample in found if sample.one.spec.task == task]
