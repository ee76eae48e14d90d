"""What the memory allows: plain reads, and an in-place axpy, over far more than the caches hold."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lioncub.bench.cases import Case
from lioncub.bench.config import BenchConfig
from lioncub.kernels import native


def ceiling_cases(config: BenchConfig) -> list[Case]:
    """Several ways to read, for the fastest counts; x += a·y reads two numbers for each that it writes."""
    values = torch.rand(config.ceiling_bytes // 4, generator=torch.Generator().manual_seed(0))
    x, y = values.chunk(2)
    size = values.nbytes
    reads = [
        Case(
            group="ceiling",
            name=name,
            run=lambda _, read=read: read(),  # type: ignore[misc]
            bytes_read=size,
            bytes_written=0,
            limit="read",
            numel=len(values),
        )
        for name, read in _reads(values).items()
    ]
    axpy = Case(
        group="ceiling",
        name="x.add_(y, alpha=a)",
        run=lambda _: x.add_(y, alpha=1e-6),
        bytes_read=size,
        bytes_written=size // 2,
        limit="axpy",
        numel=len(x),
    )
    return [*reads, axpy]


def _reads(values: Tensor) -> dict[str, Callable[[], object]]:
    x, y = values.chunk(2)
    reads: dict[str, Callable[[], object]] = {
        "x.sum()": values.sum,
        "x.view(int64).sum()": values.view(torch.int64).sum,
        "torch.dot(x, y)": lambda: torch.dot(x, y),
    }
    if not native.why_not():
        reads["native read"] = lambda: native.read_ceiling(values)
    return reads
