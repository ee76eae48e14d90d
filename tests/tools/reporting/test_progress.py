"""The bar of long work."""

from __future__ import annotations

import io

from rich.console import Console

from lioncub.tools.reporting.progress import progress_bar


def test_clocks_stay_where_room_is_short() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    bar = progress_bar(console)
    bar.add_task("DDP + Lion, PowerSGD hook, rank 4, 100mbit, 4 hosts, 128 tokens each", total=10, completed=5)
    with console.capture() as captured:
        console.print(bar.get_renderable())
    (line,) = (line for line in captured.get().splitlines() if line.strip())
    assert "50%" in line
    assert "0:00:00" in line
    assert "left" in line
    assert "DDP + Lion" in line
