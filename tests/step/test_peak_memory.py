"""A step makes nothing as large as the model: at most d/4 bytes and one bucket, beside parameters, state, gradients."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from contextlib import nullcontext
from statistics import median

import psutil
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from lioncub import DistributedLion, Lion, Vote, kernels
from lioncub.tools.reporting.memory import peak_bytes, reset_peak
from tests.support.cluster import Cluster

MEBI = 1 << 20
M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8


def return_freed_memory_at_once() -> None:
    """Large blocks get a mapping of their own, all threads one heap: then the resident size is what is in use."""
    libc = ctypes.CDLL("libc.so.6")
    libc.mallopt(M_MMAP_THRESHOLD, 64 * 1024)
    libc.mallopt(M_ARENA_MAX, 1)


def measured_from_here() -> int:
    """The memory in use, from which the peak counts anew."""
    gc.collect()
    reset_peak()
    return psutil.Process().memory_info().rss


def grown_since(before: int) -> int:
    peak = peak_bytes()
    assert peak is not None
    return peak - before


def peak_extra_bytes(rank: int, group: dist.ProcessGroup, numel: int, bucket_numel: int, body: str) -> list[int]:
    """Of five steps after the first."""
    return_freed_memory_at_once()
    torch.manual_seed(0)
    params = [nn.Parameter(torch.randn(numel // 16)) for _ in range(16)]
    optimizer = DistributedLion(params, codec=Vote(), process_group=group, overlap=False, bucket_numel=bucket_numel)
    for param in params:
        param.grad = torch.randn_like(param)
    found = []
    with kernels.using(body) if body else nullcontext():
        for step in range(6):
            before = measured_from_here()
            optimizer.step()
            if step:
                found.append(grown_since(before))
    return found


@pytest.mark.parametrize(("num_workers", "body"), [(1, ""), (2, ""), (4, ""), (2, "torch")])
def test_peak_memory_of_a_step(cluster: Cluster, num_workers: int, body: str) -> None:
    numel, bucket_numel = 16 * MEBI, 4 * MEBI  # a quarter, as by default
    for found in cluster.run(num_workers, peak_extra_bytes, numel, bucket_numel, body):
        typical = median(found)  # a busy machine's threads and late pages now and then add to one step
        assert typical <= numel // 4 + 4 * bucket_numel, f"{typical / MEBI:.1f} MiB"


def peak_extra_bytes_of_lion(rank: int, group: dist.ProcessGroup, order: str, body: str) -> int:
    """Of a step on 16 tensors of a million elements each, none of them contiguous."""
    return_freed_memory_at_once()
    params = [nn.Parameter(IN_ORDER[order](torch.randn(256, 256, 4, 4))) for _ in range(16)]
    optimizer = Lion(params)
    for param in params:
        param.grad = torch.randn_like(param)
    with kernels.using(body):
        optimizer.step()
        before = measured_from_here()
        optimizer.step()
    return grown_since(before)


IN_ORDER: dict[str, Callable[[Tensor], Tensor]] = {
    "channels last": lambda x: x.to(memory_format=torch.channels_last),
    "transposed": lambda x: x.view(1024, 1024).t(),
}


@pytest.mark.parametrize("order", IN_ORDER)
@pytest.mark.parametrize(("body", "limit"), [("native", MEBI), ("torch", 16 * MEBI)])
def test_plain_lion_needs_no_memory_whatever_the_order_of_elements(
    cluster: Cluster, order: str, body: str, limit: int
) -> None:
    if kernels.bodies()[body]:
        pytest.skip(kernels.bodies()[body])
    (extra,) = cluster.run(1, peak_extra_bytes_of_lion, order, body)
    assert extra < limit, f"{extra / MEBI:.1f} MiB"
