"""A running lab as a context manager: when the block ends, by an error too, no process of the lab is left."""

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
from lioncub.tools.lab import registry
from lioncub.tools.lab.isolation import Isolation
from lioncub.tools.lab.network import outer_command
from lioncub.tools.lab.plan import LOOPBACK, PORT, Plan
from lioncub.tools.lab.processes import adopt_orphans, descendants, kill

STOP_SECONDS = 25.0
INNER = (sys.executable, "-m", "lioncub.tools.lab.supervisor")


def launch_command(isolation: Isolation) -> list[str]:
    return outer_command(isolation.options, INNER) if isolation.networked else list(INNER)


@contextmanager
def running(plan: Plan, isolation: Isolation, output: IO[bytes] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """The process of a lab's supervisor. Its exit code is that of the first host that failed, or 0."""
    if not isolation.networked:  # without a PID namespace, whose end would end all processes
        adopt_orphans()
    others = set(descendants(os.getpid()))
    # A session of its own: Ctrl-C reaches this process alone, which then ends the lab in order.
    process = subprocess.Popen(
        launch_command(isolation),
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
        start_new_session=True,
    )
    try:
        with registry.registered(process.pid):
            tell(process, to_json(plan))
            yield process
    finally:
        stop(process)
        if not isolation.networked:
            end_orphans(others)


def end_orphans(others: Collection[int]) -> None:
    """Kill the hosts of a killed lab: all descendants but ``others``, which are older."""
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
    """Stop a lab in order, or kill it at the time-out."""
    assert process.stdin is not None
    try:
        if process.poll() is None:
            tell(process, "stop")
            process.wait(STOP_SECONDS)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        pass
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()  # the end of its input makes the lab end at once
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port(isolation: Isolation) -> int:
    """A free port: any in a namespace, an unused one on loopback."""
    if isolation.networked:
        return PORT
    with socket.create_server((LOOPBACK, 0)) as server:
        port: int = server.getsockname()[1]
        return port
