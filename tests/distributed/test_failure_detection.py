"""Failure detection: missing is a worker that does not report, not the first peer that somebody lost."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from torch._C._distributed_c10d import HashStore

from lioncub.distributed import failure_detection
from lioncub.distributed.failure_detection import report_alive, silent_workers

NONCE = "7"
EVERYBODY = range(4)


@pytest.fixture(autouse=True)
def _haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_detection, "PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(failure_detection, "DOUBT_SECONDS", 3.0)


def _asked(store: Any, suspected: list[int], rank: int = 1) -> tuple[int, ...]:
    return silent_workers(lambda: store, NONCE, rank, EVERYBODY, suspected)


def test_a_suspect_that_is_the_only_silent_one_is_named_at_once() -> None:
    store = HashStore()
    for rank in (0, 3):
        report_alive(store, NONCE, rank)
    started = time.monotonic()
    assert _asked(store, [2]) == (2,)
    assert time.monotonic() - started < 0.25


def test_a_neighbour_who_is_late_is_not_named() -> None:
    """Worker 1 waits for 0, which waits for 2; worker 0 is busy, and notices long after 1."""
    store = HashStore()
    report_alive(store, NONCE, 3)
    late = threading.Timer(1.0, report_alive, (store, NONCE, 0))
    late.start()
    assert _asked(store, [0]) == (2,)
    late.join()


def test_where_nobody_is_silent_what_was_seen_is_all_there_is_to_say() -> None:
    store = HashStore()
    for rank in (0, 2, 3):
        report_alive(store, NONCE, rank)
    assert _asked(store, [2]) == (2,)


@pytest.mark.parametrize("suspected", [[0, 2, 3], [0], [2]])
def test_where_several_stay_silent_all_name_them(suspected: list[int]) -> None:
    """Nothing distinguishes a dead worker from one that notices the failure after the detection has ended."""
    store = HashStore()
    report_alive(store, NONCE, 3)
    assert _asked(store, suspected) == (0, 2)


def test_a_store_that_fails_leaves_what_was_seen() -> None:
    class Gone:
        def set(self, key: str, value: str) -> None:
            raise RuntimeError("Connection reset by peer")

    assert _asked(Gone(), [0]) == (0,)


def test_a_store_that_does_not_answer_is_not_waited_for() -> None:
    """Its process is stopped: the sockets are there, and silent."""
    forever = threading.Event()

    class Stopped:
        def set(self, key: str, value: str) -> None:
            forever.wait()
            raise RuntimeError("Broken pipe")

    started = time.monotonic()
    assert _asked(Stopped(), [0]) == (0,)
    assert time.monotonic() - started < 2.5
    forever.set()


def test_a_store_that_dies_meanwhile_leaves_what_it_said_last() -> None:
    class Dying(HashStore):
        checks = 0

        def check(self, keys: list[str]) -> bool:
            self.checks += 1
            if self.checks > 12:
                raise RuntimeError("Connection reset by peer")
            return bool(super().check(keys))

    store = Dying()
    for rank in (0, 3):
        report_alive(store, NONCE, rank)
    assert _asked(store, [0]) == (2,)
