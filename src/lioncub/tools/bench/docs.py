"""The results of a benchmark in a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from lioncub.tools.reporting.docs import Markers, fenced
from lioncub.tools.reporting.grid import Grid

MARKERS = Markers("bench")


def write_docs(path: Path, about: Mapping[str, object], grids: Sequence[Grid]) -> None:
    """Replace the results that a document shows."""
    MARKERS.write(path, "\n".join([provenance(about), *(grid.to_markdown() for grid in grids)]))


def provenance(about: Mapping[str, object]) -> str:
    """The machine, commit and command of the figures, in Markdown."""
    return f"{sentence(about)}\n\n{fenced([str(about['command'])])}\n"


def sentence(about: Mapping[str, object]) -> str:
    """The machine and commit in one sentence."""
    quick = "A quick run, in cache: these figures mean nothing. " if about["quick"] else ""
    isa = f", native kernels for {about['isa']}" if about["isa"] else ""
    return (
        f"{quick}Measured on {about['date']} at commit {about['commit'] or 'unknown'}: {about['cpu']}, "
        f"{about['cores']} cores (load before: {about['load']}), {int(str(about['l3_bytes'])) >> 20} MiB of L3, "
        f"{about['system']}, Python {about['python']}, torch {about['torch']}{isa}; "
        f"{about['kernel_numel']:,} elements, medians of {about['rounds']} x {about['repeats']} samples taken in turn."
    )
