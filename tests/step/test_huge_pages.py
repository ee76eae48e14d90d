"""Momenta in huge pages are tensors like any other."""

from __future__ import annotations

import copy
import io
import mmap
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from lioncub import DistributedLion, Lion
from lioncub.step import huge_pages as pages
from lioncub.step.huge_pages import zeros_like_all

LARGE = torch.randn(1024, 1100)  # 4.5 MB: more than two huge pages
ORDERS = {
    "contiguous": LARGE,
    "transposed": LARGE.t(),
    "channels last": torch.randn(64, 64, 16, 20).to(memory_format=torch.channels_last),
    "expanded": torch.randn(1, 1100).expand(1024, 1100),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("memory_format", [torch.preserve_format, torch.contiguous_format])
def test_like_zeros_like(order: str, memory_format: torch.memory_format) -> None:
    tensors = [ORDERS[order], torch.randn(3), torch.randn(0), nn.Parameter(torch.randn(7, 5, dtype=torch.float64))]
    dtypes = [torch.float32, torch.bfloat16, torch.float32, torch.float64]
    for tensor, dtype, zeros in zip(tensors, dtypes, zeros_like_all(tensors, dtypes, memory_format), strict=True):
        expected = torch.zeros_like(tensor, dtype=dtype, memory_format=memory_format, requires_grad=False)
        assert type(zeros) is Tensor
        assert zeros.dtype == dtype
        assert zeros.stride() == expected.stride()
        assert torch.equal(zeros, expected)
        assert not zeros.requires_grad
        assert zeros._base is None
        assert zeros.data_ptr() % pages.LINE_BYTES == 0


def test_each_has_a_storage_of_its_own(tmp_path: Path) -> None:
    one, other = zeros_like_all([LARGE, LARGE], [torch.float32, torch.bfloat16])
    assert one.untyped_storage().nbytes() == LARGE.numel() * 4
    assert other.untyped_storage().nbytes() == LARGE.numel() * 2
    one.copy_(LARGE)
    assert not other.any()
    save_file({"one": one, "other": other}, tmp_path / "both")  # refuses tensors that share memory
    assert torch.equal(load_file(tmp_path / "both")["one"], LARGE)
    assert torch.equal(copy.deepcopy(one), LARGE)
    file = io.BytesIO()
    torch.save(other, file)
    assert file.tell() < 2.1 * LARGE.numel()


@pytest.mark.parametrize("kind", [Lion, DistributedLion])
def test_another_default_device(kind: type[Lion]) -> None:
    model = nn.Linear(1100, 1100)
    with torch.device("meta"):
        optimizer = kind(model.parameters())
        optimizer.load_state_dict(optimizer.state_dict())
    assert optimizer.state[model.weight]["exp_avg"].device.type == "cpu"


def test_one_outlives_the_others() -> None:
    one, other = zeros_like_all([LARGE, LARGE], [torch.float32, torch.float32])
    del one
    assert not other.add_(1).ne(1).any()


@pytest.mark.parametrize("missing", ["advice", "room", "size"])
def test_without_huge_pages(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object, **__: object) -> None:
        raise OSError("Cannot allocate memory")

    asked: list[int] = []
    real = pages._huge_pages

    def noting(num_bytes: int) -> mmap.mmap | None:
        asked.append(num_bytes)
        return real(num_bytes)

    monkeypatch.setattr(pages, "_huge_pages", noting)
    if missing == "advice":
        monkeypatch.delattr(mmap, "MADV_HUGEPAGE")
    elif missing == "room":
        monkeypatch.setattr(mmap, "mmap", no_room)
    tensor = torch.randn(10) if missing == "size" else LARGE
    (zeros,) = zeros_like_all([tensor], [torch.float32])
    assert torch.equal(zeros, torch.zeros_like(tensor))
    assert bool(asked) == (missing != "size")


def test_the_system_gives_huge_pages() -> None:
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not setting.exists() or "[never]" in setting.read_text():
        pytest.skip("this system gives none")
    model = nn.Linear(4096, 4096, bias=False)
    before = huge_kilobytes()
    optimizer = Lion(model.parameters())
    assert optimizer.state[model.weight]["exp_avg"].shape == (4096, 4096)
    if huge_kilobytes() == before:
        pytest.skip("this system has none left")
    assert huge_kilobytes() - before >= 60 * 1024  # of 64 MiB


def huge_kilobytes() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages"))
