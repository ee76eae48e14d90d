"""Who is missing? Workers that lost a peer report to the group's store; whoever does not report is the one.

What a worker sees first may be a consequence: a server that lost a worker, a neighbour that gave up. All that noticed
something are alive, and say so; the culprit cannot.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from torch.distributed import distributed_c10d

from lioncub.transport.comm import Comm

PATIENCE_SECONDS = 2.0
"""How long the living get to report, and the store to answer."""
DOUBT_SECONDS = 10.0
"""The same while several are silent: a busy worker notices later than others, some at their time-out only."""
POLL_SECONDS = 0.05


def missing_workers(comm: Comm, nonce: int, accused: Sequence[int]) -> tuple[int, ...]:
    """The ranks that are really missing, as far as survivors can tell; ``accused`` is what this worker saw."""
    everybody = [comm.global_rank(index) for index in range(comm.size)]
    return silent_workers(distributed_c10d._get_default_store, f"{nonce:x}", comm.rank, everybody, accused)


def silent_workers(
    store: Callable[[], Any], nonce: str, rank: int, everybody: Sequence[int], accused: Sequence[int]
) -> tuple[int, ...]:
    """Those of ``everybody`` that do not report under this nonce."""
    verdicts: list[tuple[int, ...]] = []

    def ask() -> None:
        with suppress(RuntimeError):
            verdicts.extend(_verdicts(store(), nonce, rank, everybody, accused))

    # In a thread with a deadline: the store may live in the very process that is gone.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS + 1)
    if verdicts:  # the store answers
        thread.join(DOUBT_SECONDS)
    return verdicts[-1] if verdicts else tuple(accused)


def report_alive(store: Any, nonce: str, rank: int) -> None:
    """Nobody who asks under this nonce shall miss this worker."""
    store.set(_key(nonce, rank), "alive")


def _key(nonce: str, rank: int) -> str:
    return f"lioncub/survivors/{nonce}/{rank}"


def _verdicts(
    store: Any, nonce: str, rank: int, everybody: Sequence[int], accused: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """Who seems to be missing, again and again, until it is certain or patience ends: then all who are silent."""
    report_alive(store, nonce, rank)
    started = time.monotonic()
    while True:
        silent = tuple(each for each in everybody if not store.check([_key(nonce, each)]))
        is_certain = len(silent) <= 1 and set(silent) <= set(accused)
        if is_certain or time.monotonic() - started > (DOUBT_SECONDS if len(silent) > 1 else PATIENCE_SECONDS):
            yield silent or tuple(accused)
            return
        yield tuple(each for each in silent if each in accused) or silent or tuple(accused)
        time.sleep(POLL_SECONDS)
