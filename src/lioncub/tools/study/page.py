"""A study's results as one page: its figures and tables, experiment by experiment."""

from __future__ import annotations

from collections.abc import Sequence

from lioncub.tools.reporting.page import Plot, document
from lioncub.tools.study.plots import PLOTS
from lioncub.tools.study.presets import Preset
from lioncub.tools.study.records import Run
from lioncub.tools.study.results import views
from lioncub.tools.study.tables import table


def page(preset: Preset, names: Sequence[str], runs: Sequence[Run]) -> str:
    """Each experiment on each task is a view of it."""
    shown = views(preset, names, runs)
    return document(
        "study.html",
        "lioncub: does it learn as well?",
        "Does it learn as well?",
        views=shown,
        figures=[
            Plot(name=name, views=[kind.draw(view.found) for view in shown], caption=kind.caption)
            for name, kind in PLOTS.items()
        ],
        grids=[table(view.title, view.found) for view in shown],
    )
