"""The commands that make the network, as argument lists: a bridge, and a pair of virtual interfaces for each host."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lioncub.tools.lab.plan import INTERFACE, SWITCH, HostPlan, Plan

Command = list[str]
BRIDGE = "br0"


def bridge_commands() -> list[Command]:
    """The commands for the bridge, in the namespace of the switch."""
    return [
        ["ip", "link", "add", BRIDGE, "type", "bridge"],
        ["ip", "address", "add", f"{SWITCH}/24", "dev", BRIDGE],
        ["ip", "link", "set", BRIDGE, "up"],
    ]


def store_command(plan: Plan) -> Command:
    """The store of torchrun's agents, a process on the switch."""
    return [sys.executable, "-m", "lioncub.tools.lab.store", *plan.store.split()]


def naming_commands(scratch: str) -> list[Command]:
    """For a file of names, ``scratch/hosts``, between the first and the second: memory over a folder, the file over the
    system's own, the folder as it was. All are seen by the lab alone."""
    return [
        ["mount", "-t", "tmpfs", "lioncub-lab", scratch],
        ["mount", "--bind", f"{scratch}/hosts", "/etc/hosts"],
        ["umount", "--lazy", scratch],
    ]


def host_commands(index: int, host: HostPlan, pid: str) -> list[Command]:
    """``pid``: a process in the host's namespace. Both ends of the cable are shaped: what the host sends, and what
    it is sent."""
    port = f"port{index}"
    inside = ["nsenter", f"--net=/proc/{pid}/ns/net"]
    commands = [
        ["ip", "link", "add", port, "type", "veth", "peer", "name", INTERFACE, "netns", pid],
        ["ip", "link", "set", port, "master", BRIDGE, "up"],
        [*inside, "ip", "link", "set", "lo", "up"],
        [*inside, "ip", "address", "add", f"{host.address}/24", "dev", INTERFACE],
        [*inside, "ip", "link", "set", INTERFACE, "up"],
    ]
    if host.shaping:
        commands += [
            ["tc", "qdisc", "add", "dev", port, *host.shaping],
            [*inside, "tc", "qdisc", "add", "dev", INTERFACE, *host.shaping],
        ]
    return commands


def host_launch(host: HostPlan, pid: str) -> Command:
    """The host's command, started where the host is, with none of root's rights, as the user who called sudo."""
    place = ["nsenter", f"--net=/proc/{pid}/ns/net", f"--uts=/proc/{pid}/ns/uts", "--"]
    fewer = ["setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", *host.identity]
    return [*place, *fewer, "--", *host.command]


def holder_command(host: HostPlan) -> Command:
    """A process that is nothing but the host's namespace: it ends when its standard input does."""
    return ["unshare", "--net", "--uts", "--", "sh", "-c", 'hostname "$0" 2>/dev/null; exec cat', host.name]


def outer_command(isolation: Sequence[str], inner: Sequence[str]) -> Command:
    """Namespaces for the switch, and for all processes: when the first process in it ends, the kernel ends the others,
    and with the last process of a network namespace its interfaces go."""
    return [
        *("unshare", *isolation, "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
        *("--", *inner),
    ]
