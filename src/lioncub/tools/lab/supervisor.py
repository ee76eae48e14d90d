"""The supervisor of a lab, in its namespace: builds the network, runs every host's command, counts bytes.

``python -m lioncub.tools.lab.supervisor`` reads its plan from the first line of its standard input. A line ``stop``
ends the hosts in order. The end of the input, when the parent process has ended, kills all processes at once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn, TextIO

from lioncub.records import from_json
from lioncub.tools.lab.counters import Counters, read_counters
from lioncub.tools.lab.errors import LabError
from lioncub.tools.lab.network import (
    Command,
    bridge_commands,
    holder_command,
    host_commands,
    host_launch,
    naming_commands,
    store_command,
)
from lioncub.tools.lab.plan import INTERFACE, LOOPBACK, HostPlan, Plan
from lioncub.tools.lab.processes import adopt_orphans, descendants, kill_descendants, namespace_of

GRACE_SECONDS = 10.0
LINGER_SECONDS = 15.0
"""The time for the other hosts to report and end after one has failed."""
POLL_SECONDS = 0.05
STOPPED = 130
SCRATCH = tempfile.gettempdir()


class Host:
    """A host of the lab: its namespace, its process, and the lines it prints."""

    def __init__(self, index: int, plan: HostPlan, *, networked: bool) -> None:
        self.index, self.plan, self.networked = index, plan, networked
        self.process: subprocess.Popen[str] | None = None
        self.reader: threading.Thread | None = None
        self.holder: subprocess.Popen[bytes] | None = None

    def connect(self) -> None:
        """Make the namespace and its link to the bridge."""
        self.holder = subprocess.Popen(holder_command(self.plan), stdin=subprocess.PIPE)
        own = namespace_of(os.getpid())
        deadline = time.monotonic() + GRACE_SECONDS
        while namespace_of(self.holder.pid) in ("", own):
            if self.holder.poll() is not None or time.monotonic() > deadline:
                raise LabError(f"{self.plan.name}: no network namespace could be made")
            time.sleep(0.002)
        for command in host_commands(self.index, self.plan, self.pid):
            run(command)

    @property
    def pid(self) -> str:
        return str(self.holder.pid) if self.holder else "self"

    def start(self) -> None:
        command = host_launch(self.plan, self.pid) if self.networked else list(self.plan.command)
        try:
            self.process = subprocess.Popen(
                command,
                env=os.environ | self.plan.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            raise LabError(f"{self.plan.name} cannot run {command[0]}: {error.strerror}") from error
        self.reader = threading.Thread(target=self._copy_lines, daemon=True)
        self.reader.start()

    def _copy_lines(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            say(f"{prefix(self.index)} {line.rstrip()}")

    def poll(self) -> int | None:
        return self.process.poll() if self.process else None

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, number)

    def drain(self) -> None:
        """Print the last lines."""
        if self.reader is not None:
            self.reader.join(timeout=2)

    def counters(self) -> Counters:
        return read_counters(INTERFACE, self.pid) if self.networked else Counters()


def main() -> None:
    adopt_orphans()
    told = sys.stdin.readline()
    if not told:  # the parent process has ended
        sys.exit(STOPPED)
    plan = from_json(told, Plan)
    hosts = [Host(index, host, networked=plan.networked) for index, host in enumerate(plan.hosts)]
    stop = threading.Event()
    threading.Thread(target=watch, args=(sys.stdin, stop), daemon=True).start()
    try:
        if plan.networked:
            build(hosts)
        store = subprocess.Popen(store_command(plan), env=quiet(), stdin=subprocess.DEVNULL) if plan.store else None
        for host in hosts:
            host.start()
        code = follow(hosts, stop)
        if store is not None:
            store.kill()
        if plan.networked:
            report(hosts, plan.counters)
    except LabError as error:
        say(f"error: {error}")
        code = 1
    finally:
        end(hosts)
    sys.stdout.flush()
    os._exit(code)  # threads that still read from the hosts need not be waited for


def watch(orders: TextIO, stop: threading.Event) -> None:
    """Wait for ``stop``; kill all processes when the input ends."""
    for line in orders:
        if line.strip() == "stop":
            stop.set()
    end_at_once()


def end_at_once() -> NoReturn:
    """Kill all descendants, repeatedly: a process may be started while others are killed."""
    deadline = time.monotonic() + GRACE_SECONDS
    while descendants(os.getpid()) and time.monotonic() < deadline:
        kill_descendants(os.getpid())
    os._exit(STOPPED)


def quiet() -> dict[str, str]:
    """torch warns of hosts without DNS, a line each."""
    return {"TORCH_CPP_LOG_LEVEL": "ERROR"} | os.environ


def build(hosts: Sequence[Host]) -> None:
    for command in bridge_commands():
        run(command)
    name_hosts(hosts)
    for host in hosts:
        host.connect()


def name_hosts(hosts: Sequence[Host]) -> None:
    """Hosts resolve one another by name: a hosts file in memory, visible in the lab's mount namespace only."""
    cover, bind, uncover = naming_commands(SCRATCH)
    lines = [f"{LOOPBACK} localhost", *(f"{host.plan.address} {host.plan.name}" for host in hosts)]
    run(cover)
    (Path(SCRATCH) / "hosts").write_text("\n".join(lines) + "\n")
    run(bind)
    run(uncover)


def run(command: Command) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.returncode}")


def follow(hosts: Sequence[Host], stop: threading.Event) -> int:
    """Wait for all hosts; the exit code of the first that failed."""
    failed: int | None = None
    deadline = float("inf")
    while any(host.poll() is None for host in hosts):
        if stop.wait(POLL_SECONDS):
            return STOPPED
        if failed is None and (failed := first_failure(hosts)):
            deadline = time.monotonic() + LINGER_SECONDS
        if time.monotonic() > deadline:
            say("ending the other hosts")
            break
    code = failed or first_failure(hosts) or 0
    return code if code >= 0 else 128 - code


def first_failure(hosts: Sequence[Host]) -> int | None:
    """The exit code of a host that has failed, which is told."""
    for host in hosts:
        if code := host.poll():
            host.drain()
            say(f"{prefix(host.index)} ended with {describe(code)}")
            return code
    return None


def describe(code: int) -> str:
    return f"exit code {code}" if code > 0 else signal.Signals(-code).name


def end(hosts: Sequence[Host]) -> None:
    """Terminate the hosts, then kill: no process that a host has started outlives the lab."""
    for host in hosts:
        host.signal(signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    while any(host.process and host.poll() is None for host in hosts) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    while descendants(os.getpid()) and time.monotonic() < deadline + GRACE_SECONDS:
        kill_descendants(os.getpid())
        time.sleep(POLL_SECONDS)
    for host in hosts:
        host.drain()


def report(hosts: Sequence[Host], path: str) -> None:
    """The bytes of every host's link: a line each, and a file for those who compute with them."""
    found = {host.plan.name: host.counters() for host in hosts}
    for name, counters in found.items():
        say(f"{name}: sent {counters.sent_bytes:,} bytes, received {counters.received_bytes:,}")
    if path:
        try:
            Path(path).write_text(json.dumps({name: asdict(counters) for name, counters in found.items()}) + "\n")
        except OSError as error:
            say(f"error: the counters could not be written to {path}: {error.strerror}")


_speaking = threading.Lock()


def say(line: str) -> None:
    with _speaking:
        try:
            print(line, flush=True)
        except BrokenPipeError:  # the output was closed, as by `lioncub lab … | head`
            end_at_once()


def prefix(index: int) -> str:
    """The name of a host before its lines, in colour on a terminal."""
    text = f"[host{index}]"
    return f"\x1b[{31 + index % 6}m{text}\x1b[0m" if sys.stdout.isatty() else text


if __name__ == "__main__":
    main()
