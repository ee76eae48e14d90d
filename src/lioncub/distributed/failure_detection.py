"""Failure detection: which workers are missing after an exchange has failed.

The peer that a worker has lost may have failed for a consequence: a server that lost a worker, a neighbour that closed
its sockets. So every worker that notices a failure reports to the group's store; missing are those that do not report.
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
"""The time for live workers to report, and for the store to answer."""
DOUBT_SECONDS = 10.0
"""The same while several workers are silent: a busy worker may notice the failure at its own time-out only."""
POLL_SECONDS = 0.05


def missing_workers(comm: Comm, nonce: int, suspected: Sequence[int]) -> tuple[int, ...]:
    """The missing ranks, as far as the survivors can tell; ``suspected`` are the peers that this worker lost."""
    everybody = [comm.global_rank(index) for index in range(comm.size)]
    return silent_workers(distributed_c10d._get_default_store, f"{nonce:x}", comm.rank, everybody, suspected)


def silent_workers(
    store: Callable[[], Any], nonce: str, rank: int, everybody: Sequence[int], suspected: Sequence[int]
) -> tuple[int, ...]:
    """The ranks of ``everybody`` that do not report under this nonce; ``suspected`` where the store does not answer."""
    estimates: list[tuple[int, ...]] = []

    def ask() -> None:
        with suppress(RuntimeError):
            estimates.extend(_estimates(store(), nonce, rank, everybody, suspected))

    # In a thread with a deadline: the store may have been hosted by the missing worker.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS + 1)
    if estimates:  # the store answers
        thread.join(DOUBT_SECONDS)
    return estimates[-1] if estimates else tuple(suspected)


def report_alive(store: Any, nonce: str, rank: int) -> None:
    """Report under this nonce that this worker is alive."""
    store.set(_key(nonce, rank), "alive")


def _key(nonce: str, rank: int) -> str:
    return f"lioncub/survivors/{nonce}/{rank}"


def _estimates(
    store: Any, nonce: str, rank: int, everybody: Sequence[int], suspected: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """Estimates of the missing ranks, until one is certain or the time is over; the last one is all silent ranks."""
    report_alive(store, nonce, rank)
    started = time.monotonic()
    while True:
        silent = tuple(each for each in everybody if not store.check([_key(nonce, each)]))
        is_certain = len(silent) <= 1 and set(silent) <= set(suspected)
        if is_certain or time.monotonic() - started > (DOUBT_SECONDS if len(silent) > 1 else PATIENCE_SECONDS):
            yield silent or tuple(suspected)
            return
        yield tuple(each for each in silent if each in suspected) or silent or tuple(suspected)
        time.sleep(POLL_SECONDS)
