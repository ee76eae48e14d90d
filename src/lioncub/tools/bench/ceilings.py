"""The ceilings set by memory: plain reads, and an in-place axpy, over two tensors on which kernels work as well."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lioncub.kernels import native
from lioncub.tools.bench.cases import Case


def ceiling_cases(x: Tensor, y: Tensor) -> list[Case]:
    """Several ways to read both, for the fastest counts; x += a·y reads two numbers for each that it writes."""
    reads = [
        Case(
            group="ceiling",
            name=name,
            run=lambda _, read=read: read(),  # type: ignore[misc]
            bytes_read=x.nbytes + y.nbytes,
            bytes_written=0,
            limit="read",
            numel=x.numel() + y.numel(),
        )
        for name, read in _reads(x, y).items()
    ]
    axpy = Case(
        group="ceiling",
        name="x.add_(y, alpha=a)",
        run=lambda _: x.add_(y, alpha=1e-6),
        bytes_read=x.nbytes + y.nbytes,
        bytes_written=x.nbytes,
        limit="axpy",
        numel=x.numel(),
    )
    return [*reads, axpy]


def _reads(x: Tensor, y: Tensor) -> dict[str, Callable[[], object]]:
    def both(read: Callable[[Tensor], object]) -> Callable[[], object]:
        return lambda: (read(x), read(y))

    reads: dict[str, Callable[[], object]] = {
        "sum()": both(torch.sum),
        "view(int64).sum()": both(lambda values: values.view(torch.int64).sum()),
        "linalg.vector_norm()": both(torch.linalg.vector_norm),
        "torch.dot(x, y)": lambda: torch.dot(x, y),
    }
    if not native.why_not():
        reads["native read"] = both(native.read_ceiling)
    return reads
