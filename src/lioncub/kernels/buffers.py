"""Memory for messages, used again step after step.

Fresh memory is handed out by the system page by page, each zeroed at its first touch. On the way of a vote that costs
more than all that is done with the bytes, so what a message has left is kept for the next one. Never is more kept than
was in use at one time.
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
"""Below it the C library has memory that was used before."""
GRAIN_BYTES = 1 << 16
ROOMY = 2
"""A piece up to so many times as large will do."""


class Pool:
    """Pieces of memory. A piece comes back when the last tensor on it is gone, in whatever thread that happens."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[mmap.mmap] = []  # the one that came back last at the end
        # By finalizers, which may run anywhere, in the middle of these methods too, and must not wait for a lock. None
        # asks for everything to be let go.
        self._returned: deque[mmap.mmap | None] = deque()
        self._used_bytes = self._free_bytes = self._most_bytes = 0

    def empty(self, *shape: int) -> Tensor:
        """A tensor of bytes on the CPU, with anything in it."""
        num_bytes = math.prod(shape)
        if num_bytes < LEAST_BYTES:
            return torch.empty(shape, dtype=torch.uint8)
        piece = self._piece(num_bytes)
        view = memoryview(piece)
        weakref.finalize(view, self._returned.append, piece).atexit = False
        return torch.frombuffer(view, dtype=torch.uint8, count=num_bytes).view(shape)

    def let_go(self) -> None:
        """Keep nothing that is not in use, from the next call on. May be called by finalizers."""
        self._returned.append(None)

    @property
    def kept_bytes(self) -> int:
        """Of memory that is not in use."""
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
"""The process's own: messages of all optimizers take turns on it."""
