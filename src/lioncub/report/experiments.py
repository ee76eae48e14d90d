"""What a comparison answers: what plain Lion pays for the network, what each bit width brings, how hosts add up."""

from __future__ import annotations

from collections.abc import Sequence

from lioncub.compare.methods import BASELINE, COMPUTE_ALONE
from lioncub.report.comparison import Place
from lioncub.report.grid import Grid
from lioncub.report.units import digits

NONE = "–"
WIDTHS = {"vote": "vote", "cub-1": "1 bit", "cub-2": "2 bits", "cub-4": "4 bits", "cub-8": "8 bits"}


def experiments(places: Sequence[Place]) -> list[Grid]:
    """The tables that the records have figures for."""
    tables = (plain_lion(places), bit_widths(places), hosts(places))
    return [table for table in tables if table.rows]


def plain_lion(places: Sequence[Place]) -> Grid:
    """How long DDP with Lion waits for the network."""
    rows = []
    for place in places:
        ideal, baseline = place.cell(COMPUTE_ALONE), place.cell(BASELINE)
        if ideal and baseline:
            waits = baseline.step_seconds - ideal.step_seconds
            rows.append(
                [
                    place.name,
                    ms(ideal.step_seconds),
                    ms(baseline.step_seconds),
                    ms(waits),
                    f"{waits / baseline.step_seconds:.0%}",
                    f"{digits(baseline.step_seconds / ideal.step_seconds)}x",
                ]
            )
    return Grid(
        "Communication of plain Lion",
        ["where", "compute, ms", "DDP + Lion, ms", "communication, ms", "of the step", "ideal speedup"],
        rows,
        "Communication: the step of DDP with Lion in float32 less that of computing alone. Ideal speedup: without it.",
    )


def bit_widths(places: Sequence[Place]) -> Grid:
    """The step of every width, and how often it goes into one of DDP with Lion."""
    rows = []
    for place in places:
        cells = {method: place.cell(method) for method in WIDTHS}
        if place.cell(BASELINE) and sum(cell is not None for cell in cells.values()) > 1:
            texts = [
                NONE if cell is None else f"{ms(cell.step_seconds)} ({digits(place.speedup(cell) or 0.0)}x)"
                for cell in cells.values()
            ]
            rows.append([place.name, *texts])
    return Grid(
        "Speed at each bit width",
        ["where", *WIDTHS.values()],
        rows,
        "Median step in milliseconds, and how many of them go into one step of DDP with Lion.",
    )


def hosts(places: Sequence[Place]) -> Grid:
    """The same job on more and more hosts."""
    several = {_but_hosts(place) for place in places if len(_hosts_like(place, places)) > 1}
    rows = []
    for place in sorted((p for p in places if _but_hosts(p) in several), key=lambda p: (_but_hosts(p), _hosts(p))):
        cells = [place.cell(method) for method in (COMPUTE_ALONE, BASELINE, "vote", "cub-4")]
        texts = [NONE if cell is None else ms(cell.step_seconds) for cell in cells]
        vote = cells[2]
        sent = NONE if vote is None else f"{8 * vote.bytes_sent / vote.parameters:.2f}"
        faster = NONE if vote is None or cells[1] is None else f"{digits(cells[1].step_seconds / vote.step_seconds)}x"
        rows.append([place.name, *texts, faster, sent])
    return Grid(
        "Scaling with hosts",
        ["where", "compute, ms", "DDP + Lion, ms", "vote, ms", "4 bits, ms", "vote's speedup", "vote's bits"],
        rows,
        "Hosts share the cores of this machine, so computing slows down as they grow in number. Bits: sent per host, "
        "step and parameter, from the counters of the interfaces.",
    )


def ms(seconds: float) -> str:
    return digits(seconds * 1e3)


def _but_hosts(place: Place) -> tuple[str, str, int, int]:
    one = place.cells[0]
    return (one.job, one.link, one.examples, one.seed)


def _hosts(place: Place) -> int:
    return place.cells[0].hosts


def _hosts_like(place: Place, places: Sequence[Place]) -> set[int]:
    return {_hosts(each) for each in places if _but_hosts(each) == _but_hosts(place)}
