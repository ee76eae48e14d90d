"""The bar of long work."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column


def progress_bar(console: Console) -> Progress:
    """What is done, the time it took, the time left; nothing where there is no terminal.

    Where room is short, the description gives way and the clocks stay.
    """
    return Progress(
        TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
        BarColumn(bar_width=20, table_column=Column(no_wrap=True)),
        TaskProgressColumn(table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        TextColumn("·"),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
        TextColumn("left"),
        console=console,
        disable=not console.is_terminal,
        expand=True,
    )
