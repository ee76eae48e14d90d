"""The result of a comparison in one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lioncub.tools.compare.methods import ADAMW, BASELINE, COMPUTE_ALONE
from lioncub.tools.compare.records import Cell, Point
from lioncub.tools.report.comparison import Place, best_loss, places_of
from lioncub.tools.reporting.units import counted, digits

FLOAT32 = (ADAMW, BASELINE)
"""What a method is held against: the first that was trained."""

ALIKE = 1.05
"""Times that differ by less than this factor are not called faster or slower."""


def headline(cells: Iterable[Cell]) -> str:
    """Which method reached the loss of what people have, when, and with how many bytes; or why there is no answer.

    The loss is the best that both reached, the first of :data:`FLOAT32` and the best Lion Cub; of the Lion Cubs that
    reached it, the one that was first. Without a Lion Cub, any method that is not DDP. Of several places the first is
    told, and the range.
    """
    places = places_of(cells)
    if not places:
        return "There are no records to compare."
    duels = [(place, duel) for place in places if (duel := _duel(place)) is not None]
    if not duels:
        return _why_not(places)
    place, duel = duels[0]
    if len(places) == 1:
        return duel.sentence()
    return f"{place.name}: {duel.sentence()} {_range(duels, places)}"


@dataclass(frozen=True, kw_only=True)
class Duel:
    """A method against the baseline, where both first reached one loss."""

    loss: float
    ours: Cell
    theirs: Cell
    our_point: Point
    their_point: Point

    @property
    def faster(self) -> float:
        return self.their_point.seconds / self.our_point.seconds

    def sentence(self) -> str:
        our_bytes, their_bytes = self.our_point.bytes_sent, self.their_point.bytes_sent
        bytes_part = f", {_times(their_bytes / our_bytes, 'fewer', 'more')} bytes" if our_bytes and their_bytes else ""
        return (
            f"{self.ours.label} reached loss {self.loss:.3f} in {digits(self.our_point.seconds)} s, "
            f"{self.theirs.label} in {digits(self.their_point.seconds)} s: {_pace(self.faster)}{bytes_part}."
        )


def _duel(place: Place) -> Duel | None:
    theirs = min((cell for cell in place.trained if cell.method in FLOAT32), key=_by_name, default=None)
    rivals = _rivals(place.trained)
    if theirs is None or not rivals:
        return None
    loss = max(best_loss(theirs), min(map(best_loss, rivals)))
    reached = [(cell, point) for cell in rivals if (point := cell.first_at(loss)) and point.seconds > 0]
    their_point = theirs.first_at(loss)
    if not reached or their_point is None or not their_point.seconds:
        return None
    ours, our_point = min(reached, key=lambda pair: pair[1].seconds)
    return Duel(loss=loss, ours=ours, theirs=theirs, our_point=our_point, their_point=their_point)


def _by_name(cell: Cell) -> int:
    return FLOAT32.index(cell.method)


def _rivals(cells: Sequence[Cell]) -> list[Cell]:
    others = [cell for cell in cells if cell.method != COMPUTE_ALONE and not cell.method.startswith("ddp-")]
    return [cell for cell in others if cell.method.startswith("cub-")] or others


def _why_not(places: Sequence[Place]) -> str:
    """What is missing from every place."""
    failed = [cell for place in places for cell in place.cells if cell.error]
    trained = [cell for place in places for cell in place.trained]
    if not any(cell.method in FLOAT32 for cell in trained):
        missing = f"float32 ({' or '.join(FLOAT32)})"
        failed = [cell for cell in failed if cell.method in FLOAT32]
    elif not _rivals(trained):
        missing = "Lion Cub, or another method that is not DDP,"
        failed = [cell for cell in failed if not cell.method.startswith("ddp-")]
    else:
        missing = "a Lion Cub and float32 at the same place, and of the same range,"
        failed = []
    reason = f" {failed[0].label} failed: {failed[0].error}" if failed else ""
    return f"Nothing to compare: these records have no validation losses of {missing} that learned something.{reason}"


def _range(duels: Sequence[tuple[Place, Duel]], places: Sequence[Place]) -> str:
    """Over all runs: one place can have been measured several times."""
    factors = sorted(duel.faster for _, duel in duels)
    least, most = digits(factors[0]), digits(factors[-1])
    wheres = {place.cells[0].place for place in places}
    over = counted(len(wheres), "place") + (f" and {len(places)} measurements" if len(wheres) < len(places) else "")
    missing = f"; {len(places) - len(duels)} cannot be compared" if len(duels) < len(places) else ""
    spread = f"{least} to {most} times as fast" if len(duels) > 1 else "only this one can be compared"
    return f"Over {over}: {spread}{missing if len(duels) > 1 else ''}."


def _pace(factor: float) -> str:
    if 1 / ALIKE < factor < ALIKE:
        return "no faster"
    return _times(factor, "faster", "slower")


def _times(factor: float, more: str, less: str) -> str:
    return f"{digits(factor)} times {more}" if factor >= 1 else f"{digits(1 / factor)} times {less}"
