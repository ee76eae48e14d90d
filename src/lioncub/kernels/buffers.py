"""A pool of memory for payloads and messages, which lasts from step to step.

The system zeroes each page of fresh memory at its first access. For the payloads of a vote that costs more than all
work on the bytes, so memory that is free again is kept for the next message. Memory in use and memory that is kept
never exceed the most that was in use at one time.
"""

from __future__ import annotations

import math
import mmap
import threading
import weakref
from collections import deque

import torch
from torch import Tensor

LEAST_BYTES = 1 << 16
"""Smaller tensors are allocated by torch: the C library reuses small pieces of memory itself."""
GRAIN_BYTES = 1 << 16
ROOMY = 2
"""A request takes a free piece that is at most so many times as large."""


class Pool:
    """Pieces of memory. A piece is free again when its last tensor is deleted, in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[mmap.mmap] = []  # in the order in which they were freed
        # Filled by finalizers, which may interrupt these methods and so must not take the lock. None: release all.
        self._returned: deque[mmap.mmap | None] = deque()
        self._used_bytes = self._free_bytes = self._most_bytes = 0

    def empty(self, *shape: int) -> Tensor:
        """An uninitialised tensor of bytes on the CPU."""
        num_bytes = math.prod(shape)
        if num_bytes < LEAST_BYTES:
            return torch.empty(shape, dtype=torch.uint8)
        piece = self._piece(num_bytes)
        view = memoryview(piece)
        weakref.finalize(view, self._returned.append, piece).atexit = False
        return torch.frombuffer(view, dtype=torch.uint8, count=num_bytes).view(shape)

    def let_go(self) -> None:
        """Release all free memory at the next call of a method. May be called by finalizers."""
        self._returned.append(None)

    @property
    def kept_bytes(self) -> int:
        """The size of the free memory."""
        with self._lock:
            self._take_back()
            return self._free_bytes

    def _piece(self, num_bytes: int) -> mmap.mmap:
        with self._lock:
            self._take_back()
            fitting = [piece for piece in self._free if num_bytes <= len(piece) <= ROOMY * num_bytes + GRAIN_BYTES]
            if fitting:
                piece = min(reversed(fitting), key=len)  # of those as large the last, which the cache still holds
                self._free.remove(piece)
                self._free_bytes -= len(piece)
            else:
                size = -(-num_bytes // GRAIN_BYTES) * GRAIN_BYTES
                piece = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self._used_bytes += len(piece)
            self._most_bytes = max(self._most_bytes, self._used_bytes)
            while self._free and self._used_bytes + self._free_bytes > self._most_bytes:
                self._free_bytes -= len(self._free.pop(0))
            return piece

    def _take_back(self) -> None:
        wanted = True
        while self._returned:
            piece = self._returned.popleft()
            if piece is None:
                wanted = False
                continue
            self._free.append(piece)
            self._used_bytes -= len(piece)
            self._free_bytes += len(piece)
        if not wanted:
            self._free.clear()
            self._free_bytes, self._most_bytes = 0, self._used_bytes


pool = Pool()
"""The pool of this process, for the messages of all optimizers."""
