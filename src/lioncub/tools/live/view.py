"""A board, drawn for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from rich.box import ROUNDED
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from lioncub.monitor.events import Exchange, Finding, Reading
from lioncub.tools.live.board import Board, shares
from lioncub.tools.live.marks import Bar, Spark
from lioncub.tools.reporting.texts import lines, one_line
from lioncub.tools.reporting.units import bytes_text, rate_text, seconds_text

STYLES = {"compute": "green", "encode": "cyan", "wait": "yellow", "apply": "blue"}
SILENT_SECONDS = 15.0
"""After this long without an event the title says so."""
ABOVE = (1, 0, 0, 0)
"""An empty line above."""

Row = tuple[RenderableType, RenderableType, RenderableType, RenderableType]


def view(board: Board) -> Panel:
    """Everything, in a frame of the terminal's width."""
    parts: list[RenderableType] = [Text(one_line(board.start.optimizer), "dim", no_wrap=True, overflow="ellipsis")]
    if board.reading is None:
        parts.append(Text("waiting for the first steps"))
    else:
        parts.append(Padding(_figures(board, board.reading), ABOVE))
        if board.abstentions:
            parts.append(Text(f"abstained  {board.abstained()}", "yellow"))
    for signature, finding in board.findings.items():
        parts.append(Padding(finding_text(finding, board.num_findings[signature]), ABOVE))
    if board.end is not None and board.end.error:
        parts.append(Padding(Text(lines(board.end.error), "red"), ABOVE))
    return Panel(Group(*parts), title=_title(board), title_align="left", box=ROUNDED, border_style="bright_black")


def finding_text(finding: Finding, times: int = 1) -> Text:
    """What was seen, how often, and what to do."""
    when = f" at step {finding.step:,}" + (f", {times} times so far" if times > 1 else "")
    head = (f"▲ {one_line(finding.signature)}", "bold red"), (f"{when}: ", "red"), f"{one_line(finding.message)}."
    return Text.assemble(*head, ("\n→ ", "bold green"), one_line(finding.remedy))


def _title(board: Board) -> Text:
    title = Text.assemble(("lioncub live", "bold"), f" · worker {board.start.worker}", style="default")
    if (reading := board.reading) is not None:
        elapsed = timedelta(seconds=round(max(reading.time - board.start.time, 0)))
        title.append(f" · step {reading.step:,} · {elapsed}")
    if board.end is not None:
        title.append(" · ended" if not board.end.error else " · failed", "bold red" if board.end.error else "bold")
    elif board.silence() > SILENT_SECONDS:
        title.append(f" · silent for {timedelta(seconds=round(board.silence()))}", "bold yellow")
    return title


def _figures(board: Board, reading: Reading) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, justify="right", style="bold")
    grid.add_column(ratio=1)
    grid.add_column(no_wrap=True, style="dim")
    for row in _time_rows(reading):
        grid.add_row(*row)
    if reading.loss is not None or reading.exchange is not None:
        grid.add_row()
    if reading.loss is not None:
        losses = Spark(board.series(lambda past: past.loss), "magenta")
        best = "" if board.best_loss is None else f"best {board.best_loss:.4g}"
        grid.add_row("loss", f"{reading.loss:.4g}", losses, best)
    if reading.exchange is not None:
        for row in _exchange_rows(board, reading.exchange, reading.seconds):
            grid.add_row(*row)
    return grid


def _time_rows(reading: Reading) -> Iterator[Row]:
    part_seconds, part_shares = reading.parts(), shares(reading)
    speed = f"{1 / reading.seconds:.3g} steps/s" if reading.seconds > 0 else ""
    yield (
        "step",
        seconds_text(reading.seconds),
        Bar([(share, STYLES[part]) for part, share in part_shares.items()]),
        speed,
    )
    for part, share in part_shares.items():
        yield f"  {part}", seconds_text(part_seconds[part]), Bar([(share, STYLES[part])]), f"{share:.0%}"


def _exchange_rows(board: Board, exchange: Exchange, seconds: float) -> Iterator[Row]:
    if exchange.agreement is not None:
        agreements = Spark(board.series(lambda past: past.exchange.agreement if past.exchange else None), "magenta")
        yield "agreement", f"{exchange.agreement:.1%}", agreements, "with the outcome"
    per_second = 1 / seconds if seconds > 0 else 0.0
    bits = Text(f"{exchange.bits_per_parameter:.3g} bits/parameter", "dim")
    yield "sent", bytes_text(exchange.bytes_sent), bits, rate_text(exchange.bytes_sent * per_second)
    yield "received", bytes_text(exchange.bytes_received), "", rate_text(exchange.bytes_received * per_second)
    yield "voters", str(exchange.voters), "", ""
