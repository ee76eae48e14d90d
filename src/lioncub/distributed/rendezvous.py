"""Rendezvous through a store that may still hold the keys of an earlier attempt.

Every process draws a random name, writes it to the store, reads the names of all ranks, and confirms the list that it
read. The group is complete when all workers have confirmed the same list. A process that has ended cannot confirm a
list with a new name in it, so no list that mixes attempts is ever complete, even where launchers on different machines
disagree about the number of restarts.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from datetime import timedelta
from typing import Any

from lioncub.errors import AgreementError, PeerTimeoutError, name_ranks

_NAME = re.compile(rb"[0-9a-f]{16}")
POLL_SECONDS = 0.02
"""The interval of polling: ``store.wait()`` prints stack traces at its time-out."""


def meet(store: Any, rank: int, size: int, timeout: timedelta) -> str:
    """Wait until all workers have arrived. Returns the name of this attempt: new, and the same on all workers.

    Raises :class:`PeerTimeoutError` that names the workers which did not arrive.
    """
    own, attempt = secrets.token_hex(8), ""
    store.set(_arrival(rank), own)
    deadline = time.monotonic() + timeout.total_seconds()
    while not (attempt and store.check([_confirmation(attempt, worker) for worker in range(size)])):
        if time.monotonic() > deadline:
            waited = f"worker {rank} waited {timeout.total_seconds():g} s for all to start"
            raise PeerTimeoutError(_missing(store, size, attempt), waited)
        time.sleep(POLL_SECONDS)
        attempt = _confirm(store, rank, size, own)
    return attempt


def _confirm(store: Any, rank: int, size: int, own: str) -> str:
    """Confirm the names that are in the store; the attempt that they stand for, "" while a name is missing."""
    arrivals = [_arrival(worker) for worker in range(size)]
    if not store.check(arrivals):
        return ""
    read = store.multi_get(arrivals)
    if strange := [worker for worker, name in enumerate(read) if not _NAME.fullmatch(name)]:
        raise AgreementError(
            f"what the store holds of {name_ranks(strange)} was not written by lioncub: somebody else writes to it. "
            "Keep its port from them, and start again with a new --rdzv-id"
        )
    names = [name.decode() for name in read]
    if names[rank] != own:
        raise AgreementError(
            f"another process has arrived as worker {rank}: this one is left over from an earlier attempt, or two "
            "processes were started with the same RANK"
        )
    attempt = hashlib.sha256(" ".join(names).encode()).hexdigest()[:16]
    store.set(_confirmation(attempt, rank), "")
    return attempt


def _missing(store: Any, size: int, attempt: str) -> list[int]:
    """The workers without a name in the store or, where all have one, without a confirmation of this attempt."""
    keys = [_confirmation(attempt, worker) if attempt else _arrival(worker) for worker in range(size)]
    return [worker for worker in range(size) if not store.check([keys[worker]])]


def _arrival(worker: int) -> str:
    return f"arrived/{worker}"


def _confirmation(attempt: str, worker: int) -> str:
    return f"confirmed/{attempt}/{worker}"
