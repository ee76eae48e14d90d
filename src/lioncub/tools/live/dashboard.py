"""Events in the terminal."""

from __future__ import annotations

from time import monotonic

from rich.console import Console
from rich.live import Live

from lioncub.monitor.events import End, Event, Finding, Reading
from lioncub.tools.live.board import Board, line
from lioncub.tools.live.view import finding_text, view
from lioncub.tools.reporting.texts import lines

SECONDS_BETWEEN_DRAWINGS = 0.25
SECONDS_BETWEEN_LINES = 10.0


class Dashboard:
    """A sink: a picture of the job on a terminal, a line now and then elsewhere. Findings and the end come at once."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = Console(stderr=True) if console is None else console
        self._board = Board()
        self._live: Live | None = None
        self._next = 0.0
        self._printed: Reading | None = None

    def take(self, event: Event) -> None:
        self._board.take(event)
        if self._console.is_terminal:
            if isinstance(event, Finding | End) or monotonic() >= self._next:
                self.draw()
        else:
            self._print(event)

    def draw(self) -> None:
        """Draw what is known, on a terminal."""
        if not self._console.is_terminal:
            return
        self._next = monotonic() + SECONDS_BETWEEN_DRAWINGS
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        self._live.update(view(self._board), refresh=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _print(self, event: Event) -> None:
        if isinstance(event, Finding):
            self._say(finding_text(event).plain)
        elif isinstance(event, End):
            self._print_reading()
            self._say(f"failed: {event.error}" if event.error else "ended")
        elif monotonic() >= self._next:
            self._print_reading()

    def _print_reading(self) -> None:
        reading = self._board.reading
        if reading is not None and reading is not self._printed:
            self._printed = reading
            self._next = monotonic() + SECONDS_BETWEEN_LINES
            self._say(line(self._board, reading))

    def _say(self, text: str) -> None:
        self._console.print(lines(text), highlight=False, markup=False, soft_wrap=True)
