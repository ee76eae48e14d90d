"""The isolation of hosts on this machine: network namespaces as root, or in a user namespace, or none (loopback)."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass

from lioncub.tools.lab.network import bridge_commands, naming_commands, outer_command
from lioncub.tools.lab.rates import Rate

TOOLS = {"unshare": "util-linux", "nsenter": "util-linux", "setpriv": "util-linux", "ip": "iproute2", "tc": "iproute2"}
PROBE_SECONDS = 10.0
WAYS = {"root": (), "user namespaces": ("--user", "--map-root-user")}


@dataclass(frozen=True)
class Isolation:
    """A way to isolate hosts. ``networked``: with a shaped network. Otherwise ``reason`` says why there is none."""

    name: str
    options: tuple[str, ...] = ()
    """The options of ``unshare``."""
    networked: bool = True
    reason: str = ""


def find_isolation() -> Isolation:
    """The first way that works, tried with a bridge and a shaped link that are removed at once."""
    missing = sorted({package for tool, package in TOOLS.items() if shutil.which(tool) is None})
    if missing:
        return Isolation("loopback", networked=False, reason=f"install {' and '.join(missing)}")
    reasons = []
    for name, options in WAYS.items():
        if name == "root" and os.geteuid() != 0:
            continue
        problem = probe(options)
        if not problem:
            return Isolation(name, options)
        reasons.append(f"{name}: {problem}")
    return Isolation("loopback", networked=False, reason="; ".join(reasons))


def probe(options: tuple[str, ...]) -> str:
    """Why a network cannot be made this way; empty if it can."""
    cable = ["ip", "link", "add", "port0", "type", "veth", "peer", "name", "port1"]
    shape = ["tc", "qdisc", "add", "dev", "port0", *Rate(10**9).shaping()]
    memory, *_ = naming_commands(tempfile.gettempdir())
    script = " && ".join(shlex.join(command) for command in [*bridge_commands(), cable, shape, memory])
    try:
        done = subprocess.run(
            outer_command(options, ["sh", "-c", script]),
            capture_output=True,
            text=True,
            check=False,
            timeout=PROBE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {PROBE_SECONDS:.0f} s"
    return done.stderr.strip().replace("\n", ", ") if done.returncode else ""
