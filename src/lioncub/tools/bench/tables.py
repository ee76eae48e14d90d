"""The figures of a benchmark as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lioncub.tools.bench.records import Record
from lioncub.tools.reporting.grid import Grid

Columns = dict[str, Callable[[Record], str]]

TIME: Columns = {"ms": lambda record: f"{record.median_seconds * 1e3:.3g}"}
RATE: Columns = {"GB/s": lambda record: f"{record.gb_per_second:.1f}", "%": lambda record: f"{record.percent:.0f}"}
RATIO: Columns = {"x": lambda record: "–" if record.ratio is None else f"{record.ratio:.2f}"}
EACH: Columns = {"µs each": lambda record: f"{record.seconds_per_tensor * 1e6:.2f}"}


def tables(records: Sequence[Record]) -> list[Grid]:
    """All tables in their order. 1T, 2T: the number of threads."""
    kernel_ceilings = [record for record in records if not record.model]
    return [
        _grid(
            kernel_ceilings,
            "ceiling",
            "Memory ceilings",
            RATE,
            "Percent of the fastest of its kind, which is the ceiling.",
        ),
        _grid(
            records,
            "kernel",
            "Kernels",
            TIME | RATE,
            "Median; percent of the in-run ceiling for the same bytes: apply_, lion_, encode_values and what writes "
            "the next momentum against the axpy, all others against the read. Inputs in cache can exceed 100.",
        ),
        _grid(
            records,
            "step",
            "Whole steps",
            TIME | RATIO,
            "Median; x: times as fast as AdamW(fused=True) on the same tensors.",
        ),
        _grid(records, "small", "Tiny tensors", EACH, "One call with many tensors of 16 elements, per tensor."),
    ]


def _grid(records: Sequence[Record], group: str, title: str, columns: Columns, note: str) -> Grid:
    """A row for each case, the columns once for each number of threads."""
    chosen = [record for record in records if record.group == group]
    threads = sorted({record.threads for record in chosen})
    rows: dict[tuple[str, ...], dict[int, Record]] = {}
    for record in chosen:
        label = (f"{record.model}: {record.name}" if record.model else record.name, record.body or "–")
        rows.setdefault(label, {}).setdefault(record.threads, record)
    headings = [f"{count}T {heading}" for count in threads for heading in columns]
    cells = [
        [*label, *(text(found[count]) for count in threads for text in columns.values())]
        for label, found in rows.items()
    ]
    return Grid(title, ["case", "body", *headings], cells, note, num_texts=2)
