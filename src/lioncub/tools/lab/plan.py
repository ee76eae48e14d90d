"""The plan of a lab: all that its supervisor needs, as JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lioncub.tools.lab.config import LabConfig

INTERFACE = "eth0"
PORT = 29400
SWITCH = "10.77.0.254"
FIRST = 101
"""The last byte of host 0's address. All have three digits: torchrun ranks agents by the text of their addresses."""
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class HostPlan:
    """One host: its link and what it runs."""

    name: str
    address: str
    shaping: tuple[str, ...]
    """The arguments of ``tc``; empty for a link that is not shaped."""
    command: tuple[str, ...]
    environment: Mapping[str, str]
    """The environment variables of the command, added to the lab's."""
    identity: tuple[str, ...] = ()
    """The options of ``setpriv`` for the user; empty for the user who runs the lab."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The whole lab. Without ``networked`` all hosts are this one, on loopback."""

    hosts: tuple[HostPlan, ...]
    networked: bool
    store: str = ""
    """The address and port of the store of torchrun's agents, on the switch; empty without torchrun."""
    counters: str = ""


def plan_of(config: LabConfig, *, networked: bool, port: int = PORT, ours: bool = False) -> Plan:
    """``ours``: the command is this program's own, and goes on as the user it runs as; others run as sudo's caller."""
    drops = networked and os.geteuid() == 0 and not ours
    addresses = [f"10.77.0.{FIRST + host}" if networked else LOOPBACK for host in range(config.hosts)]
    hosts = [
        HostPlan(
            name=f"host{index}",
            address=address,
            shaping=tuple(rate.shaping()) if rate and networked else (),
            command=tuple(host_command(config, index, address, port, networked=networked)),
            environment=host_environment(config, index, addresses[0], port, networked=networked),
            identity=caller(os.environ) if drops else (),
        )
        for index, (address, rate) in enumerate(zip(addresses, config.rates(), strict=True))
    ]
    counters = str(config.counters.absolute()) if config.counters else ""
    store = f"{SWITCH} {port}" if networked and is_script(config.command) else ""
    return Plan(hosts=tuple(hosts), networked=networked, store=store, counters=counters)


def caller(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The user who called sudo, as whom hosts run instead of root."""
    user, group = environment.get("SUDO_UID", ""), environment.get("SUDO_GID", "")
    if not (user.isdecimal() and group.isdecimal()) or user == "0":
        return ()
    return (f"--reuid={user}", f"--regid={group}", "--clear-groups")


def is_script(command: Sequence[str]) -> bool:
    """Whether torchrun starts it: a Python file, or ``-m module``."""
    return command[0].endswith(".py") or command[0] == "-m"


def host_command(config: LabConfig, index: int, address: str, port: int, *, networked: bool) -> list[str]:
    if not is_script(config.command):
        return list(config.command)
    if networked:
        meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{SWITCH}:{port}", "--rdzv-conf", "is_host=false"]
        meeting += ["--rdzv-id", "lab", "--local-addr", address]
    else:
        meeting = ["--node-rank", str(index), "--master-addr", address, "--master-port", str(port)]
    return [
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--nnodes", str(config.hosts), "--nproc-per-node", str(config.workers_per_host)),
        *meeting,
        *config.command,
    ]


def host_environment(config: LabConfig, index: int, master: str, port: int, *, networked: bool) -> dict[str, str]:
    """The variables of torchrun for one process per host, for commands that torchrun does not start."""
    cores_each = max(1, (os.cpu_count() or 1) // (config.hosts * config.workers_per_host))
    rate = config.rates()[index] if networked else None
    return {
        "GLOO_SOCKET_IFNAME": INTERFACE if networked else "lo",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(cores_each)),
        "PYTHONUNBUFFERED": "1",
        "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),  # hosts without DNS: a warning each
        "MASTER_ADDR": master,
        "MASTER_PORT": str(port),
        "RANK": str(index),
        "WORLD_SIZE": str(config.hosts),
        "LOCAL_RANK": "0",
        "LIONCUB_LAB_RATE": str(rate) if rate else "unshaped",
    }
