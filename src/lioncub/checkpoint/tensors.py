"""Tensors in files: the safetensors format, written as a stream and read with every claim of its header checked.

Written here and not by the safetensors package, so that bytes are hashed on their way, never copied twice, and every
write passes through :mod:`~lioncub.checkpoint.disk`. The package reads these files, and tests hold them to it.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
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
    with open_exactly(path, entry) as file:
        content = bytearray(entry.num_bytes)
        for start, chunk in _hashed(path, file, entry):
            content[start : start + len(chunk)] = chunk
    length = _header_length(path, content[:8], entry)
    spans = _spans(path, content[8 : 8 + length], entry.num_bytes - 8 - length, metadata)
    return {name: span.cut(content, 8 + length) for name, span in spans.items()}


def check_tensors(path: Path, entry: Entry, metadata: Mapping[str, str], progress: Progress) -> None:
    """Raise as :func:`read_tensors` would, in little memory."""
    with open_exactly(path, entry) as file:
        for _, chunk in _hashed(path, file, entry):
            progress(len(chunk))
        file.seek(0)
        length = _header_length(path, file.read(8), entry)
        _spans(path, file.read(length), entry.num_bytes - 8 - length, metadata)


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


def _hashed(path: Path, file: FileIO, entry: Entry) -> Iterator[tuple[int, bytes]]:
    digest, start = hashlib.sha256(), 0
    while start < entry.num_bytes:
        chunk = file.read(min(CHUNK_BYTES, entry.num_bytes - start))
        if not chunk:
            break
        digest.update(chunk)
        yield start, chunk
        start += len(chunk)
    if digest.hexdigest() != entry.sha256:
        raise CheckpointError(f"{path} is damaged: its SHA-256 is not the one in the manifest")


@dataclass(frozen=True)
class Span:
    """Where a tensor lies behind the header."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    stop: int

    def __post_init__(self) -> None:
        if not all(type(size) is int and 0 <= size < 2**48 for size in (*self.shape, self.start, self.stop)):
            raise ValueError("a size that is not a number of elements")
        if self.stop - self.start != prod(self.shape) * self.dtype.itemsize:
            raise ValueError("a shape that does not fit its place")

    def cut(self, content: bytearray, offset: int) -> Tensor:
        """The tensor, in the memory of ``content``."""
        if self.start == self.stop:
            return torch.empty(self.shape, dtype=self.dtype)
        count = (self.stop - self.start) // self.dtype.itemsize
        return torch.frombuffer(content, dtype=self.dtype, count=count, offset=offset + self.start).view(self.shape)


def _header_length(path: Path, lead: bytes | bytearray, entry: Entry) -> int:
    length = int.from_bytes(lead, "little")
    if len(lead) < 8 or length > entry.num_bytes - 8:
        raise CheckpointError(f"{path} is not a safetensors file: its header is longer than the file")
    return length


def _spans(path: Path, header: bytes | bytearray, data_bytes: int, metadata: Mapping[str, str]) -> dict[str, Span]:
    """What the header says, where it makes sense: tensors side by side that fill the file."""
    try:
        claims = strict_json.parse(bytes(header))
        if claims.pop("__metadata__") != metadata:
            raise ValueError(f"it does not belong to {dict(metadata)}")
        spans = {name: _span(**claim) for name, claim in claims.items()}
        places = sorted((span.start, span.stop) for span in spans.values())
        if [start for start, _ in places] + [data_bytes] != [0] + [stop for _, stop in places]:
            raise ValueError("tensors overlap, or leave gaps")
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        raise CheckpointError(f"{path} is not a safetensors file of this checkpoint: {problem}") from problem
    return spans


def _span(*, dtype: str, shape: list[int], data_offsets: list[int]) -> Span:
    start, stop = data_offsets
    return Span(DTYPES[dtype], tuple(shape), start, stop)
