"""The part of a document that a benchmark writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from lioncub.errors import ConfigError
from lioncub.report.grid import Grid

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"


def check_markers(path: Path) -> None:
    """Raise where results could not be written, before anything is measured."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"docs must be a document with the lines {BEGIN} and {END}: {error}") from error
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ConfigError(f"docs must have one line {BEGIN} and after it one line {END}, but {path} has not")


def write_docs(path: Path, about: Mapping[str, object], grids: Sequence[Grid]) -> None:
    """Replace what is between the markers."""
    check_markers(path)
    text = path.read_text(encoding="utf-8")
    before, after = text[: text.index(BEGIN)], text[text.index(END) :]
    results = "\n".join([provenance(about), *(grid.to_markdown() for grid in grids)])
    path.write_text(f"{before}{BEGIN}\n{results}\n{after}", encoding="utf-8")


def provenance(about: Mapping[str, object]) -> str:
    """Where the figures come from, in a few lines of Markdown."""
    return f"{sentence(about)}\n\n```sh\n{about['command']}\n```\n"


def sentence(about: Mapping[str, object]) -> str:
    """The same in one sentence."""
    quick = "A quick run, in cache: these figures mean nothing. " if about["quick"] else ""
    isa = f", native kernels for {about['isa']}" if about["isa"] else ""
    return (
        f"{quick}Measured on {about['date']} at commit {about['commit'] or 'unknown'}: {about['cpu']}, "
        f"{about['cores']} cores (load before: {about['load']}), {int(str(about['l3_bytes'])) >> 20} MiB of L3, "
        f"{about['system']}, Python {about['python']}, torch {about['torch']}{isa}; "
        f"{about['kernel_numel']:,} elements, medians of {about['repeats']} samples taken in turn."
    )
