"""A worker ends with the launcher that started it; otherwise it would run on as an orphan."""

from __future__ import annotations

import os
import signal
import threading
import time

POLL_SECONDS = 0.5
GRACE_SECONDS = 30.0
"""From SIGTERM to SIGKILL, for a step and a save; as long as torchrun gives its workers."""


def end_with_parent() -> None:
    """Send this process SIGTERM when its parent ends, and SIGKILL if it then takes too long.

    By polling: the kernel's own signal (PR_SET_PDEATHSIG) comes when the thread that started the process ends.
    """
    if not any(thread.name == _NAME for thread in threading.enumerate()):
        threading.Thread(target=_watch, args=(os.getppid(),), name=_NAME, daemon=True).start()


_NAME = "lioncub watches its launcher"


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)
