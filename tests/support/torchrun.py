"""Scripts under torchrun, the way users run them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.support.paths import ROOT

LAUNCHER = (sys.executable, "-m", "torch.distributed.run")


def script(path: Path, text: str) -> str:
    path.write_text(textwrap.dedent(text))
    return str(path)


def environment(**more: str) -> dict[str, str]:
    """A user's: nothing in it says where to listen."""
    inherited = {name: value for name, value in os.environ.items() if name != "GLOO_SOCKET_IFNAME"}
    return inherited | {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"} | more


def torchrun(
    *command: str, num_workers: int = 2, max_restarts: int = 0, seconds: float = 240, **more: str
) -> subprocess.CompletedProcess[str]:
    options = ["--standalone", f"--nproc-per-node={num_workers}", f"--max-restarts={max_restarts}"]
    return subprocess.run(
        [*LAUNCHER, *options, "--monitor-interval=0.1", *command],
        cwd=ROOT,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@contextmanager
def started(*commands: list[str], **more: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that end with the block, each with all that it has started."""
    processes = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(**more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        for command in commands
    ]
    try:
        yield processes
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def children(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children()]


def wait_for(path: Path, seconds: float = 100) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.05)


def seconds_until_gone(pids: Sequence[int], most: float = 60) -> float:
    """How long until all of these processes have ended. Those that have not after ``most`` seconds are killed."""
    began = time.monotonic()
    while left := [pid for pid in pids if is_alive(pid)]:
        if time.monotonic() > began + most:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            raise AssertionError(f"processes {left} have not ended")
        time.sleep(0.02)
    return time.monotonic() - began


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False
