"""Gradient hooks: they notice when the gradients of a bucket are complete, while backward goes on."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

from torch import Tensor
from torch.utils.hooks import RemovableHandle

from lioncub.step.buckets import Bucket


class GradientWatch:
    """Calls ``ready(bucket)`` when the last gradient of a bucket has landed, buckets always in their order.

    The order is the same on every worker, whatever order gradients land in. Hooks hold no reference to the owner.
    """

    def __init__(
        self, buckets: Sequence[Bucket], ready: Callable[[Bucket], None], twice: Callable[[str], None]
    ) -> None:
        self.paused = False
        self._buckets = buckets
        self._ready = weakref.WeakMethod(ready)
        self._twice = weakref.WeakMethod(twice)
        self._where = {slot.param: (bucket, slot.name) for bucket in buckets for slot in bucket.slots}
        self.reset()
        watch = weakref.ref(self)

        def landed(param: Tensor) -> None:
            if (alive := watch()) is not None:
                alive._landed(param)

        handles = [param.register_post_accumulate_grad_hook(landed) for param in self._where]
        self.close = weakref.finalize(self, _remove, handles)

    @property
    def touched(self) -> bool:
        """Whether a gradient has landed since the last reset."""
        return bool(self._seen)

    def reset(self) -> None:
        """Expect every gradient anew."""
        self._seen: set[Tensor] = set()
        self._missing = [len(bucket.slots) for bucket in self._buckets]
        self._next = 0

    def _landed(self, param: Tensor) -> None:
        ready, twice = self._ready(), self._twice()
        if self.paused or ready is None or twice is None:
            return
        bucket, name = self._where[param]
        if param in self._seen:
            twice(name)
            return
        self._seen.add(param)
        self._missing[bucket.index] -= 1
        while self._next < len(self._buckets) and self._missing[self._next] == 0:
            self._next += 1
            ready(self._buckets[self._next - 1])


def _remove(handles: Sequence[RemovableHandle]) -> None:
    for handle in handles:
        handle.remove()
