"""A report from end to end: read the records, show them, write the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

from rich.console import Console

from lioncub.tools.compare.records import Cell, read_cells
from lioncub.tools.report import provenance
from lioncub.tools.report.comparison import Place, places_of
from lioncub.tools.report.config import MARKERS, ReportConfig
from lioncub.tools.report.errors import ReportError
from lioncub.tools.report.experiments import experiments
from lioncub.tools.report.headline import headline
from lioncub.tools.report.tables import NARROW_NOTE, table, tables
from lioncub.tools.reporting.docs import fenced
from lioncub.tools.reporting.extra import why_no_page
from lioncub.tools.reporting.files import write_whole
from lioncub.tools.reporting.texts import one_line


def run_report(config: ReportConfig, console: Console | None = None) -> Path | None:
    """Print a table for each place; write the page, and the table into the document if one is given.

    Returns the page's path; None where it cannot be drawn, which is printed.
    """
    console = Console() if console is None else console
    cells = read_records(config.records)
    places = places_of(cells)
    for grid in tables(places):
        console.print(grid.to_rich())
    for text in (NARROW_NOTE, headline(cells)):
        console.print(one_line(text), markup=False, highlight=False)
    if config.docs is not None:
        MARKERS.write(config.docs, markdown(places))
    if problem := why_no_page():
        console.print(problem, markup=False, highlight=False, soft_wrap=True)
        return None
    from lioncub.tools.report.comparison_page import page  # here: what draws is an extra

    write(config.page_path, page(places))
    console.print(str(config.page_path), markup=False, highlight=False, soft_wrap=True)
    return config.page_path


def read_records(paths: Sequence[Path]) -> list[Cell]:
    """The cells of all files; of those with the same key the last one."""
    cells: dict[object, Cell] = {}
    for path in paths:
        try:
            cells |= {cell.key: cell for cell in read_cells(path)}
        except UnicodeDecodeError as error:
            raise ReportError(f"{path} is not text: give the records.jsonl that `lioncub compare` wrote") from error
        except ValueError as error:
            raise ReportError(f"{error}; remove the line, or run `lioncub compare` again") from error
        except OSError as error:
            raise ReportError(f"{path} cannot be read: {error.strerror}") from error
    if not cells:
        names = ", ".join(map(str, paths))
        raise ReportError(f"no cell has been finished yet in {names}: run `lioncub compare` to its end")
    return list(cells.values())


def markdown(places: Sequence[Place]) -> str:
    """Where the figures come from, what they say, and all of them."""
    cells = [cell for place in places for cell in place.cells]
    prose = [escape(one_line(text), quote=False) for text in (headline(cells), provenance.sentence(cells))]
    grids = [grid.to_markdown() for grid in (*experiments(places), replace(table(places), title="All figures"))]
    return "\n\n".join([*prose, fenced(provenance.commands(cells)), *grids])


def write(path: Path, html: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, html.encode())
    except OSError as error:
        raise ReportError(f"{path} cannot be written: {error.strerror}; choose another --out") from error
