"""A worker ends with the launcher that started it; otherwise it would run on as an orphan."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

POLL_SECONDS = 0.5
GRACE_SECONDS = 30.0
"""From SIGTERM to SIGKILL, for a step and a save; as long as torchrun gives its workers."""


def end_with_parent() -> None:
    """Send this process SIGTERM when its parent ends, and SIGKILL if it then takes too long.

    By polling: the kernel's own signal (PR_SET_PDEATHSIG) comes when the thread that started the process ends.
    """
    if not any(thread.name == _NAME for thread in threading.enumerate()):
        parent = os.getppid()
        parent = _NOBODY if _is_foster_parent(parent) else parent
        threading.Thread(target=_watch, args=(parent,), name=_NAME, daemon=True).start()


_NAME = "lioncub watches its launcher"
_NOBODY = -1


def _is_foster_parent(parent: int) -> bool:
    """Whether the launcher ended while this process imported torch, so that the system gave it another parent.

    torchrun's agent starts workers as leaders of sessions, and has torch in its memory; what inherits orphans has not.
    Where that cannot be seen, ``parent`` is taken for the agent.
    """
    if os.getsid(0) != os.getpid():
        return False
    process = Path(f"/proc/{parent}")
    try:
        return b"torch" not in (process / "maps").read_bytes()
    except PermissionError:
        return b"python" not in (process / "cmdline").read_bytes()
    except OSError:
        return False


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)
