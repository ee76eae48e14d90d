"""The figures of a demo, as a table and as a sentence."""

import os
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from lioncub.demo.config import DemoConfig
from lioncub.demo.records import Summary
from lioncub.report.numbers import bytes_text

HEADINGS = ("method", "nats/byte", "bits/byte", "step, ms", "sent/step", "fewer bytes")
NOTE = "Validation loss; median step time; bytes that worker 0 sends in a step, on average."


def cells(summary: Summary) -> tuple[str, ...]:
    """One row under `HEADINGS`."""
    return (
        summary.label,
        f"{summary.validation_loss:.3f}",
        f"{summary.bits_per_byte:.3f}",
        f"{summary.step_seconds * 1000:.0f}",
        bytes_text(summary.bytes_per_step),
        f"{summary.fewer_bytes:.1f}x",
    )


def table(summaries: Sequence[Summary], config: DemoConfig) -> Table:
    """The figures of all methods, for a terminal."""
    result = Table(title=title(config), caption=NOTE, box=SIMPLE_HEAD, pad_edge=False)
    result.title_justify = result.caption_justify = "left"
    for index, heading in enumerate(HEADINGS):
        result.add_column(heading, justify="right" if index else "left", no_wrap=True)
    for summary in summaries:
        result.add_row(*cells(summary))
    return result


def title(config: DemoConfig) -> str:
    return f"{config.steps} steps, {config.workers} workers, one learning rate ({config.lr:g}) and schedule for all"


def closing(summaries: Sequence[Summary]) -> str:
    """The result in one breath, and what it does not show."""
    first, *others = summaries
    results = "; ".join(
        f"{other.label} reached {other.validation_loss:.2f} with {other.fewer_bytes:.1f}x fewer bytes"
        for other in others
    )
    times = ", ".join(f"{summary.step_seconds * 1000:.0f}" for summary in summaries)
    return (
        f"{first.label} reached {first.validation_loss:.2f} nats per byte and sent "
        f"{bytes_text(first.bytes_per_step)} per worker and step; {results}. Median steps took {times} ms, in that "
        f"order, with all workers on this machine's {os.cpu_count()} cores and its unshaped loopback interface: what "
        "fewer bytes gain on a slow network is not measured here."
    )
