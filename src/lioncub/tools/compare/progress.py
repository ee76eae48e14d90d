"""Progress over the whole matrix: a bar with the time left on a terminal, a line per cell elsewhere."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console

from lioncub.tools.compare.records import Cell
from lioncub.tools.reporting.progress import progress_bar


class MatrixProgress:
    """Cells that are done, with the fraction of the one that is being trained. Use it as a context manager."""

    def __init__(self, console: Console, cells: int, done: int) -> None:
        self.console, self.cells, self.done = console, cells, done
        self.bar = progress_bar(console)
        self.task = self.bar.add_task("Starting", total=cells, completed=done)

    def begin(self, title: str) -> None:
        self.bar.update(self.task, description=title, completed=self.done)

    def within(self, fraction: float) -> None:
        self.bar.update(self.task, completed=self.done + min(fraction, 1.0))

    def end(self, cell: Cell) -> None:
        self.done += 1
        self.bar.update(self.task, completed=self.done)
        self.console.print(f"{self.done}/{self.cells} {line(cell)}", markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> MatrixProgress:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()


def line(cell: Cell) -> str:
    where = f"{cell.link}, {cell.hosts} hosts, {cell.examples} {cell.examples_unit}"
    if cell.error:
        return f"{where}: {cell.label} FAILED: {cell.error}"
    loss = f", loss {cell.final_loss:.3f}" if cell.final_loss is not None else ""
    sent = f", {cell.bytes_sent / 1e6:.3g} MB sent per host and step" if cell.rates else ""
    return f"{where}: {cell.label}: {cell.step_seconds * 1e3:.0f} ms a step{sent}{loss}"
