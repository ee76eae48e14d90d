"""A lab that runs: started, waited for, and gone when its block is left, whatever happens."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import IO

from lioncub.records import to_json
from lioncub.tools.lab import ledger
from lioncub.tools.lab.footing import Footing
from lioncub.tools.lab.network import outer_command
from lioncub.tools.lab.plan import LOOPBACK, PORT, Plan
from lioncub.tools.lab.processes import adopt_orphans, descendants, kill

STOP_SECONDS = 25.0
INNER = (sys.executable, "-m", "lioncub.tools.lab.inside")


def launch_command(footing: Footing) -> list[str]:
    return outer_command(footing.options, INNER) if footing.networked else list(INNER)


@contextmanager
def running(plan: Plan, footing: Footing, output: IO[bytes] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """The process that is the lab. Its exit code is that of the first host that failed, or 0."""
    if not footing.networked:  # there is no namespace that takes everything with it
        adopt_orphans()
    others = set(descendants(os.getpid()))
    # A session of its own: Ctrl-C reaches this process alone, which then ends the lab in order.
    process = subprocess.Popen(
        launch_command(footing),
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
        start_new_session=True,
    )
    try:
        with ledger.entered(process.pid):
            tell(process, to_json(plan))
            yield process
    finally:
        stop(process)
        if not footing.networked:
            end_orphans(others)


def end_orphans(others: Collection[int]) -> None:
    """Hosts whose lab was killed, all but what was there before it."""
    deadline = time.monotonic() + STOP_SECONDS
    while (left := [pid for pid in descendants(os.getpid()) if pid not in others]) and time.monotonic() < deadline:
        kill(left)
        time.sleep(0.01)


def tell(process: subprocess.Popen[bytes], line: str) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it has ended; its exit code says more
        process.stdin.write(line.encode() + b"\n")
        process.stdin.flush()


def stop(process: subprocess.Popen[bytes]) -> None:
    """In order if there is time, at once if there is not."""
    assert process.stdin is not None
    try:
        if process.poll() is None:
            tell(process, "stop")
            process.wait(STOP_SECONDS)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        pass
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()  # the lab ends at once when nobody can talk to it any more
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port(footing: Footing) -> int:
    """In namespaces every port is free."""
    if footing.networked:
        return PORT
    with socket.create_server((LOOPBACK, 0)) as server:
        port: int = server.getsockname()[1]
        return port
