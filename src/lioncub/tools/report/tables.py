"""The figures of a comparison as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lioncub.tools.compare.records import Cell
from lioncub.tools.report.comparison import Place
from lioncub.tools.reporting.grid import Grid
from lioncub.tools.reporting.units import bytes_text, digits

NONE = "–"
NOTE = (
    "Median step and its quartiles. Speedup: the step of ddp-lion at the same place divided by this one; of ideal: as "
    "a part of the speedup that compute alone would have. Bytes that a host sends in a step. Loss: validation. Common "
    "loss: the best that all methods at the place reached; seconds of training until then."
)
NARROW_NOTE = (
    "ms: the median step. speedup: against the step of DDP in float32 at the same place; ideal: as a part of the "
    "speedup of compute alone. fewer: times fewer bytes sent than by DDP in float32. loss: the last validation's; "
    "the last column: seconds of training to the best loss that all methods at the place reached."
)

Columns = dict[str, Callable[[Place, Cell], str]]

METHOD: Columns = {
    "method": lambda _, cell: _line(cell.label) + (f"\nfailed: {_line(cell.error)}" if cell.error else ""),
}
SPEED: Columns = {
    "speedup": lambda place, cell: _shown(place.speedup(cell), "{}x"),
    "of ideal": lambda place, cell: _percent(place.share_of_ideal(cell)),
}
SENT: Columns = {"sent/step": lambda place, cell: bytes_text(cell.bytes_sent) if cell in place.timed else NONE}
LESS: Columns = {
    "fewer bytes": lambda place, cell: _shown(place.fewer_bytes(cell), "{}x"),
    "final loss": lambda _, cell: _loss(None if cell.error else cell.final_loss),
}
COMMON: Columns = {
    "common loss": lambda place, cell: _loss(place.common_loss if cell in place.trained else None),
    "s to it": lambda place, cell: _shown(place.seconds_to_common_loss(cell)),
}


def table(places: Sequence[Place]) -> Grid:
    """Every cell, one below the other, with its place."""
    step: Columns = {"step, ms": lambda place, cell: _quartiles(cell) if cell in place.timed else NONE}
    columns = METHOD | _where(places) | step | SPEED | SENT | LESS | COMMON
    return _grid("", columns, places, NOTE)


def tables(places: Sequence[Place]) -> list[Grid]:
    """A narrow one for each place, under its name, for a terminal."""
    return [_narrow(place) for place in places]


def _narrow(place: Place) -> Grid:
    step: Columns = {"ms": lambda place, cell: _shown(cell.step_seconds * 1e3 if cell in place.timed else None)}
    figures = step | SPEED | LESS | {f"s to {_loss(place.common_loss)}": COMMON["s to it"]}
    short = {"of ideal": "ideal", "fewer bytes": "fewer", "final loss": "loss"}
    return _grid(place.name, METHOD | {short.get(name, name): text for name, text in figures.items()}, [place])


def _where(places: Sequence[Place]) -> Columns:
    """The place's columns: job and seed where there are several, the run where a place has several."""
    cells = [cell for place in places for cell in place.cells]
    units = list(dict.fromkeys(cell.examples_unit for cell in cells))
    job: Columns = {"job": lambda _, cell: cell.job}
    seed: Columns = {"seed": lambda _, cell: str(cell.seed)}
    run: Columns = {"run": lambda place, _: place.repeat or NONE}
    return {
        **(job if len({cell.job for cell in cells}) > 1 else {}),
        "link": lambda _, cell: cell.link,
        "hosts": lambda _, cell: f"{cell.hosts:,}",
        " or ".join(units): lambda _, cell: f"{cell.examples:,}",
        **(seed if len({cell.seed for cell in cells}) > 1 else {}),
        **(run if any(place.repeat for place in places) else {}),
    }


def _grid(title: str, columns: Columns, places: Sequence[Place], note: str = "") -> Grid:
    rows = [[text(place, cell) for text in columns.values()] for place in places for cell in place.cells]
    return Grid(title, list(columns), rows, note)


def _line(text: str, most: int = 200) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _quartiles(cell: Cell) -> str:
    low, high = cell.step_seconds_quartiles
    return f"{digits(cell.step_seconds * 1e3)} ({digits(low * 1e3)}–{digits(high * 1e3)})"


def _shown(value: float | None, form: str = "{}") -> str:
    return NONE if value is None else form.format(digits(value))


def _percent(share: float | None) -> str:
    return NONE if share is None else f"{share:.0%}"


def _loss(loss: float | None) -> str:
    return NONE if loss is None else f"{loss:.3f}"
