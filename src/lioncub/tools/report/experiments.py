"""What a comparison answers.

What plain Lion pays for the network, what each bit width brings, how near that is to what the link allows, how hosts
add up, and who is first at the same loss.
"""

from __future__ import annotations

from collections.abc import Sequence

from lioncub.tools.compare.methods import BASELINE, COMPUTE_ALONE
from lioncub.tools.report.comparison import Place, rate_of, with_other_hosts
from lioncub.tools.reporting.grid import Grid
from lioncub.tools.reporting.units import digits

NONE = "–"
WIDTHS = {"vote": "vote", "cub-1": "1 bit", "cub-2": "2 bits", "cub-4": "4 bits", "cub-8": "8 bits"}


def experiments(places: Sequence[Place]) -> list[Grid]:
    """The tables that the records have figures for."""
    tables = (plain_lion(places), bit_widths(places), limits(places), hosts(places), race(places))
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


def limits(places: Sequence[Place]) -> Grid:
    """The vote's step beside the two times that nothing can undercut."""
    rows = []
    for place in places:
        ideal, baseline, vote = (place.cell(method) for method in (COMPUTE_ALONE, BASELINE, "vote"))
        if not (ideal and baseline and vote and (rate := rate_of(vote))):
            continue
        wire = 8 * vote.bytes_sent / rate
        rows.append(
            [
                place.name,
                ms(ideal.step_seconds),
                ms(wire),
                ms(vote.step_seconds),
                f"{digits(baseline.step_seconds / vote.step_seconds)}x",
                f"{digits(baseline.step_seconds / ideal.step_seconds)}x",
                f"{ideal.step_seconds / vote.step_seconds:.0%}",
                f"{max(ideal.step_seconds, wire) / vote.step_seconds:.0%}",
            ]
        )
    return Grid(
        "How near the limit",
        ["where", "compute, ms", "wire, ms", "vote, ms", "speedup", "ideal", "of ideal", "of what the wire allows"],
        rows,
        "Wire: what the vote sends per host and step, at the rate of its link. The wire allows a step that is no "
        "shorter than that, nor than computing.",
    )


def hosts(places: Sequence[Place]) -> Grid:
    """The same job on more and more hosts."""
    rows = []
    for place in sorted(places, key=lambda place: place.cells[0].run):
        if len(with_other_hosts(place, places)) < 2:
            continue
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


def race(places: Sequence[Place]) -> Grid:
    """Seconds of training to the best loss that all methods reached, the first three and DDP with Lion."""
    rows = []
    for place in places:
        loss, finished = place.common_loss, [(place.seconds_to_common_loss(cell), cell) for cell in place.trained]
        order = sorted((time, cell.label) for time, cell in finished if time is not None)
        baseline = next((time for time, cell in finished if cell.method == BASELINE), None)
        if loss is not None and baseline is not None and len(order) > 2:
            first = [f"{label}: {digits(time)}" for time, label in order[:3]]
            rows.append([place.name, f"{loss:.3f}", *first, digits(baseline)])
    return Grid(
        "First at the same loss",
        ["where", "loss", "first: s", "second: s", "third: s", "DDP + Lion, s"],
        rows,
        "Seconds of training to the best validation loss that every method at the place reached.",
    )


def ms(seconds: float) -> str:
    return digits(seconds * 1e3)
