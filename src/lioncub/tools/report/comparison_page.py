"""The page of a comparison: its plots, its table, its records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace

from lioncub.tools.compare.records import Cell
from lioncub.tools.report import curves, provenance
from lioncub.tools.report.comparison import Place
from lioncub.tools.report.headline import headline
from lioncub.tools.report.tables import table
from lioncub.tools.reporting.grid import Grid
from lioncub.tools.reporting.page import Plot, document


def page(places: Sequence[Place]) -> str:
    """The whole document. Each place is a view of it."""
    cells = [cell for place in places for cell in place.cells]
    return document(
        "comparison.html",
        "lioncub compare",
        "Training over slow networks",
        places=[place.name for place in places],
        headlines=[headline(place.cells) for place in places],
        figures=_plots(places),
        grid=_table(places),
        records=[_record(cell) for cell in cells],
        provenance=provenance.sentence(cells),
        commands=provenance.commands(cells),
    )


def _plots(places: Sequence[Place]) -> list[Plot]:
    """Those that some place has."""
    every = [
        Plot(name="time", views=list(map(curves.loss_by_time, places)), caption="Loss against time"),
        Plot(name="bytes", views=list(map(curves.loss_by_bytes, places)), caption="Loss against bytes sent"),
        Plot(name="steps", views=list(map(curves.loss_by_step, places)), caption="Loss against steps"),
        Plot(name="split", views=list(map(curves.step_split, places)), caption="Where the time of a step goes"),
        Plot(
            name="rates",
            views=[curves.speedup_by_rate(place, places) for place in places],
            caption="Speedup against bandwidth; compute alone is the ideal",
        ),
        Plot(
            name="hosts",
            views=[curves.step_by_hosts(place, places) for place in places],
            caption="Step time against hosts",
        ),
    ]
    return [plot for plot in every if any(plot.views)]


def _table(places: Sequence[Place]) -> Grid:
    """Each row links to its record and belongs to its place's view."""
    views = [view for view, place in enumerate(places) for _ in place.cells]
    links = [f"#record-{number}" for number in range(len(views))]
    return replace(table(places), links=links, views=views)


def _record(cell: Cell) -> tuple[str, str]:
    """A title, and the record as it was read."""
    title = f"{cell.label}: {Place(cells=(cell,)).name}, seed {cell.seed}"
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in asdict(cell).items())
    return title, "{" + lines + "}"
