"""Tensors in safetensors files: hashed while they are written, hashed before the package reads them."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from lioncub.checkpoint import disk, strict_json
from lioncub.checkpoint.disk import Entry
from lioncub.errors import CheckpointError, ConfigError

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
CHUNK_BYTES = 8 << 20
Progress = Callable[[int], None]
"""Called with the number of bytes that were read."""


@dataclass(frozen=True)
class Blob:
    """A tensor as bytes in CPU memory; the thread that writes it needs no torch."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: np.ndarray

    @classmethod
    def of(cls, name: str, tensor: Tensor, *, copy: bool) -> Blob:
        """``copy``: the tensor may change while this is being written."""
        if tensor.dtype not in _NAMES or tensor.layout != torch.strided:
            raise ConfigError(f"{name} is a tensor of {tensor.dtype}, {tensor.layout}: checkpoints cannot hold it")
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        if copy and flat.data_ptr() == tensor.data_ptr():
            flat = flat.clone()
        return cls(name, _NAMES[tensor.dtype], tuple(tensor.shape), flat.view(torch.uint8).numpy())


def write_tensors(path: Path, blobs: Sequence[Blob], metadata: Mapping[str, str]) -> Entry:
    """A new file. Wide types come first, so that every tensor is aligned."""
    # Not written by the package: it copies all tensors into one string, or opens the file itself; neither lets a hash
    # follow the bytes, nor each write pass through :mod:`~lioncub.checkpoint.disk`.
    blobs = sorted(blobs, key=lambda blob: -DTYPES[blob.dtype].itemsize)
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    offset = 0
    for blob in blobs:
        place = [offset, offset := offset + blob.data.nbytes]
        header[blob.name] = {"dtype": blob.dtype, "shape": list(blob.shape), "data_offsets": place}
    text = strict_json.dump(header).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    lead = memoryview(len(text).to_bytes(8, "little") + text)
    return disk.write_file(path, [lead, *(blob.data.data for blob in blobs)])


def read_tensors(path: Path, entry: Entry, metadata: Mapping[str, str]) -> dict[str, Tensor]:
    """The tensors of a file that is exactly what the manifest says, byte for byte."""
    return _read(path, entry, metadata, lambda _: None, lambda file: file.get_tensors())


def check_tensors(path: Path, entry: Entry, metadata: Mapping[str, str], progress: Progress) -> None:
    """Raise as :func:`read_tensors` would, in little memory."""
    _read(path, entry, metadata, progress, lambda _: {})


def _read(
    path: Path,
    entry: Entry,
    metadata: Mapping[str, str],
    progress: Progress,
    take: Callable[[safe_open], dict[str, Tensor]],
) -> dict[str, Tensor]:
    """What ``take`` makes of the file, which is opened once: a name may mean another file a moment later."""
    with open_exactly(path, entry) as file:
        _check_hash(path, file, entry, progress)
        try:
            # pread: the pages of a mapped file would change with it, after its hash was checked
            with safe_open(f"/proc/self/fd/{file.fileno()}", "pt", backend="pread") as content:
                _check_header(file, metadata)
                return take(content)
        except (SafetensorError, ValueError, TypeError, KeyError, AttributeError) as problem:
            raise CheckpointError(f"{path} is not a safetensors file of this checkpoint: {problem}") from problem


def open_plain(path: Path) -> FileIO:
    """A plain file, opened for reading: no link, no device, no pipe."""
    try:
        file = FileIO(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as problem:
        raise CheckpointError(f"{path} cannot be read: {problem.strerror}") from problem
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise CheckpointError(f"{path} is not a plain file")
    return file


def open_exactly(path: Path, entry: Entry) -> FileIO:
    """A plain file of the promised size."""
    file = open_plain(path)
    if (num_bytes := os.fstat(file.fileno()).st_size) != entry.num_bytes:
        file.close()
        raise CheckpointError(f"{path} is damaged: {num_bytes} bytes where the manifest says {entry.num_bytes}")
    return file


def _check_hash(path: Path, file: FileIO, entry: Entry, progress: Progress) -> None:
    digest = hashlib.sha256()
    while chunk := file.read(CHUNK_BYTES):
        digest.update(chunk)
        progress(len(chunk))
    if digest.hexdigest() != entry.sha256:
        raise CheckpointError(f"{path} is damaged: its SHA-256 is not the one in the manifest")


def _check_header(file: FileIO, metadata: Mapping[str, str]) -> None:
    """What the package lets pass: names given twice, unknown fields, another file's metadata."""
    file.seek(0)
    claims = strict_json.parse(file.read(int.from_bytes(file.read(8), "little")))
    if claims.pop("__metadata__") != metadata:
        raise ValueError(f"it does not belong to {dict(metadata)}")
    if strange := set().union(*claims.values()) - {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"unknown fields {strange}")
