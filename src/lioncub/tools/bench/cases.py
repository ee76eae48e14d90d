"""A benchmark case."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

from lioncub import kernels

Group = Literal["ceiling", "kernel", "step", "small"]
Limit = Literal["read", "axpy"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A function to time, and the bytes that it must move."""

    group: Group
    name: str
    run: Callable[[int], object]
    """Called with 0, 1, … ``calls - 1``: the number of the input set."""
    bytes_read: int
    bytes_written: int
    limit: Limit
    """The ceiling with which it is compared."""
    body: str = ""
    model: str = ""
    num_tensors: int = 1
    numel: int = 0
    calls: int = 1
    """The most calls in one sample."""
    warm: bool = False
    """Run once before the clock starts, so that inputs come from cache."""
    ratio_to: str = ""
    """The case of the same model whose time is given as a multiple of this one's."""

    def where(self) -> AbstractContextManager[None]:
        """The kernels to run it with."""
        return kernels.using(self.body) if self.body else nullcontext()


def cpu_bodies() -> tuple[list[str], dict[str, str]]:
    """Bodies that can be timed on CPU tensors, and why the others cannot."""
    reasons = kernels.bodies()
    reasons["triton"] = reasons["triton"] or "works on CUDA and ROCm tensors; CPU tensors are measured here"
    usable = [name for name, reason in reasons.items() if not reason]
    return usable, {name: reason for name, reason in reasons.items() if reason}
