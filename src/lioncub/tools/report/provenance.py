"""Where the figures of a comparison come from."""

from __future__ import annotations

from collections.abc import Sequence

from lioncub.tools.compare.records import Cell


def sentence(cells: Sequence[Cell]) -> str:
    """When and on what they were measured; every machine, version and commit there is."""
    dates = sorted({str(cell.machine["date"]) for cell in cells if cell.machine.get("date")})
    when = f" on {dates[0]}" if len(dates) == 1 else f" from {dates[0]} to {dates[-1]}" if dates else ""
    machines = list(dict.fromkeys(_machine(cell) for cell in cells))
    warning = " Figures from different ones must not be compared." if len(machines) > 1 else ""
    seeds = sorted({cell.seed for cell in cells})
    seed = f"Seed {seeds[0]}" if len(seeds) == 1 else f"Seeds {', '.join(map(str, seeds))}"
    return f"Measured{when}: {'; '.join(machines)}.{warning} {seed}."


def commands(cells: Sequence[Cell]) -> list[str]:
    """How to measure them again."""
    return list(dict.fromkeys(cell.command for cell in cells if cell.command))


def _machine(cell: Cell) -> str:
    about = cell.machine
    forms = {"cpu": "{}", "cores": "{} cores", "system": "{}", "torch": "torch {}", "commit": "commit {}"}
    known = [form.format(about[name]) for name, form in forms.items() if about.get(name)]
    return ", ".join(known) or "a machine that the records do not name"
