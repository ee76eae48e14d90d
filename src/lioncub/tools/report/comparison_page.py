"""The page of a comparison: its plots, its table, its records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from html import escape

from lioncub.tools.compare.records import Cell
from lioncub.tools.report import curves, provenance
from lioncub.tools.report.comparison import Place
from lioncub.tools.report.headline import headline
from lioncub.tools.report.tables import table
from lioncub.tools.reporting.grid import paragraph
from lioncub.tools.reporting.page import Plot, chooser, document, plots


def page(places: Sequence[Place]) -> str:
    """The whole document. Each place is a view of it."""
    cells = [cell for place in places for cell in place.cells]
    names = [place.name for place in places]
    parts = [
        chooser("Place", names) if len(places) > 1 else paragraph(names[0]),
        *(paragraph(headline(place.cells), "lead", view) for view, place in enumerate(places)),
        plots(_plots(places)),
        "<h2>All figures</h2>\n",
        _table(places),
        _records(cells),
        "<h2>Where they come from</h2>\n",
        paragraph(provenance.sentence(cells)),
        *(f"<pre>{escape(command)}</pre>\n" for command in provenance.commands(cells)),
    ]
    return document("lioncub compare", "Training over slow networks", parts)


def _plots(places: Sequence[Place]) -> list[Plot]:
    """Those that some place has."""
    every = [
        Plot(name="time", views=list(map(curves.loss_by_time, places)), caption="Loss against time"),
        Plot(name="bytes", views=list(map(curves.loss_by_bytes, places)), caption="Loss against bytes sent"),
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


def _table(places: Sequence[Place]) -> str:
    """Each row links to its record and belongs to its place's view."""
    views = [view for view, place in enumerate(places) for _ in place.cells]
    links = [f"#record-{number}" for number in range(len(views))]
    return replace(table(places), links=links, views=views).to_html()


def _records(cells: Sequence[Cell]) -> str:
    """Every record as it was read, folded away, in the order of the table's rows."""
    items = "".join(_record(number, cell) for number, cell in enumerate(cells))
    return f"<details><summary>{len(cells)} records</summary>\n{items}</details>\n"


def _record(number: int, cell: Cell) -> str:
    title = f"{cell.label}: {Place(cells=(cell,)).name}, seed {cell.seed}"
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in asdict(cell).items())
    text = f'<pre id="record-{number}">{escape("{" + lines + "}")}</pre>'
    return f"<details><summary>{escape(title)}</summary>{text}</details>\n"
