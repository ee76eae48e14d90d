"""``lioncub lab``: from what was asked for to an exit code."""

from __future__ import annotations

import shlex

from rich.console import Console

from lioncub.lab import ledger
from lioncub.lab.config import LabConfig
from lioncub.lab.footing import Footing, find_footing
from lioncub.lab.inside import SCRATCH
from lioncub.lab.network import (
    bridge_commands,
    holder_command,
    host_commands,
    host_launch,
    naming_commands,
    store_command,
)
from lioncub.lab.plan import Plan, plan_of
from lioncub.lab.session import free_port, launch_command, running


def run_lab(config: LabConfig, console: Console | None = None) -> int:
    """Build the lab, run the command on every host, take the lab down. The exit code of the first host that failed."""
    console = Console(stderr=True) if console is None else console
    footing = find_footing()
    plan = plan_of(config, networked=footing.networked, port=free_port(footing))
    console.print(describe(config, footing), markup=False, highlight=False, soft_wrap=True)
    if config.dry_run:
        for line in dry_run(plan, footing):
            print(line)
        return 0
    with running(plan, footing) as process:
        return process.wait()


def describe(config: LabConfig, footing: Footing) -> str:
    if not footing.networked:
        return f"UNSHAPED: {config.hosts} hosts on loopback. No network can be made here: {footing.reason}"
    rates = [str(rate) if rate else "unshaped" for rate in config.rates()]
    links = rates[0] if len(set(rates)) == 1 else ", ".join(f"host{host} {rate}" for host, rate in enumerate(rates))
    return f"{config.hosts} hosts on a bridge ({footing.name}), links: {links}"


def dry_run(plan: Plan, footing: Footing) -> list[str]:
    """Every command, in order. ``HOST0`` stands for the process that holds the namespace of host 0."""
    commands = [launch_command(footing)]
    commands += [*bridge_commands(), *naming_commands(SCRATCH)] if footing.networked else []
    for index, host in enumerate(plan.hosts):
        pid = host.name.upper()
        if footing.networked:
            commands += [holder_command(host), *host_commands(index, host, pid)]
    commands += [store_command(plan)] if plan.store else []
    lines = [shlex.join(command) for command in commands]
    for host in plan.hosts:
        words = [f"{name}={value}" for name, value in host.environment.items()]
        command = host_launch(host, host.name.upper()) if footing.networked else list(host.command)
        lines.append(shlex.join(["env", *words, *command]))
    return lines


def run_clean() -> None:
    for line in ledger.clean() or ["nothing to clean"]:
        print(line)
