"""Who is missing? Workers that lost a peer report to the group's store; whoever does not report is the one.

What a worker sees first may be a consequence: a server that lost a worker, a neighbour that gave up. All that noticed
something are alive, and say so; the culprit cannot.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from torch.distributed import distributed_c10d

from lioncub.comm import Comm

PATIENCE_SECONDS = 2.0
"""How long the living get to report."""
UNNAMED_PATIENCE_SECONDS = 10.0
"""The same where the backend did not say who is missing: some may notice at their time-out only."""


def missing_workers(comm: Comm, nonce: int, accused: Sequence[int]) -> tuple[int, ...]:
    """The ranks that are really missing, as far as survivors can tell; ``accused`` is what this worker saw."""
    found: list[tuple[int, ...]] = []

    def ask() -> None:
        with suppress(RuntimeError):
            found.append(_ask(distributed_c10d._get_default_store(), comm, nonce, accused))

    # In a thread with a deadline: the store may live in the very process that is gone.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_patience_seconds(accused) + 1)
    return found[0] if found else tuple(accused)


def _patience_seconds(accused: Sequence[int]) -> float:
    return PATIENCE_SECONDS if len(accused) == 1 else UNNAMED_PATIENCE_SECONDS


def _ask(store: Any, comm: Comm, nonce: int, accused: Sequence[int]) -> tuple[int, ...]:
    def key(rank: int) -> str:
        return f"lioncub/survivors/{nonce:x}/{rank}"

    store.set(key(comm.rank), "alive")
    everybody = [comm.global_rank(index) for index in range(comm.size)]
    deadline = time.monotonic() + _patience_seconds(accused)
    while True:
        silent = tuple(rank for rank in everybody if not store.check([key(rank)]))
        certain = len(silent) <= 1 and set(silent) <= set(accused)
        if certain or time.monotonic() > deadline:
            return tuple(rank for rank in silent if rank in accused) or silent or tuple(accused)
        time.sleep(0.05)
