"""Memory for what is as large as the model and lives as long: momenta, side by side in huge pages.

A pass over a model touches every 4 KiB page of it; with pages of 2 MiB the processor looks up 512 times fewer
addresses. The system gives them to those who ask (``madvise``), and each tensor must not ask for itself: one of 3 MB
has room for a single page. The memory goes back when the last of the tensors that were made together is gone; none of
them can be resized.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn

HUGE_PAGE_BYTES = 2 << 20
LEAST_BYTES = 2 * HUGE_PAGE_BYTES
LINE_BYTES = 64
"""Tensors begin at multiples of it, as torch's own do."""


def zeros_like_all(
    tensors: Sequence[Tensor],
    dtypes: Sequence[torch.dtype],
    memory_format: torch.memory_format = torch.preserve_format,
) -> list[Tensor]:
    """``torch.zeros_like`` of each, in its precision. Those on the CPU share huge pages, but no storage."""
    zeros: list[Tensor | None] = [None] * len(tensors)
    ours = [place for place, tensor in enumerate(tensors) if _is_plain(tensor)]
    lengths = [_whole_lines(tensors[place].numel() * dtypes[place].itemsize) for place in ours]
    if sum(lengths) >= LEAST_BYTES and (memory := _huge_pages(sum(lengths))) is not None:
        starts = accumulate(lengths, initial=_to_page(memory))
        for place, start in zip(ours, starts, strict=False):
            like = torch.empty_like(
                tensors[place], dtype=dtypes[place], device="meta", memory_format=memory_format, requires_grad=False
            )
            own = torch.frombuffer(memory, dtype=like.dtype, count=like.numel(), offset=start)
            own.set_(own.untyped_storage(), 0, like.shape, like.stride())  # in its order, and no view
            own.zero_()  # as it is; but memory that is not there is missed here, and not in the middle of a step
            zeros[place] = own
    return [
        torch.zeros_like(tensor, dtype=dtype, memory_format=memory_format, requires_grad=False)
        if zero is None
        else zero
        for tensor, dtype, zero in zip(tensors, dtypes, zeros, strict=True)
    ]


def _is_plain(tensor: Tensor) -> bool:
    return type(tensor) in (Tensor, nn.Parameter) and tensor.device.type == "cpu" and tensor.numel() > 0


def _whole_lines(num_bytes: int) -> int:
    return -(-num_bytes // LINE_BYTES) * LINE_BYTES


def _huge_pages(num_bytes: int) -> mmap.mmap | None:
    """Room for so many bytes behind the first border of a huge page; None where the system has none."""
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is None:
        return None
    try:
        memory = mmap.mmap(-1, num_bytes + HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(advice)
    except OSError:  # a kernel without them, or no room: torch asks in its own way, and says so
        return None
    return memory


def _to_page(memory: mmap.mmap) -> int:
    """Bytes to the first border of a huge page."""
    return -torch.frombuffer(memory, dtype=torch.uint8, count=1).data_ptr() % HUGE_PAGE_BYTES
