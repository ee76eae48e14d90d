"""``lioncub lab``: a command on every host of a lab, and the removal of labs that were left."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from lioncub.errors import ConfigError
from lioncub.tools.lab import registry
from lioncub.tools.lab.config import LabConfig
from lioncub.tools.lab.isolation import Isolation, find_isolation
from lioncub.tools.lab.network import (
    bridge_commands,
    holder_command,
    host_commands,
    host_launch,
    naming_commands,
    store_command,
)
from lioncub.tools.lab.plan import Plan, plan_of
from lioncub.tools.lab.session import free_port, launch_command, running
from lioncub.tools.lab.supervisor import SCRATCH
from lioncub.tools.reporting.units import counted


def run_lab(config: LabConfig, console: Console | None = None) -> int:
    """Build the lab, run the command on every host, take the lab down. The exit code of the first host that failed."""
    console = Console(stderr=True) if console is None else console
    if not config.dry_run:
        check_script(config.command[0])
    isolation = find_isolation()
    plan = plan_of(config, networked=isolation.networked, port=free_port(isolation))
    console.print(describe(config, isolation), markup=False, highlight=False, soft_wrap=True)
    if config.dry_run:
        for line in dry_run(plan, isolation):
            print(line)
        return 0
    if config.counters and not isolation.networked:
        why = f"Bytes on loopback are not counted: {config.counters} is not written."
        console.print(why, markup=False, highlight=False, soft_wrap=True)
        config.counters.unlink(missing_ok=True)  # of an earlier lab
    with running(plan, isolation) as process:
        return process.wait()


def check_script(path: str) -> None:
    """Raise for a missing script, for which torchrun would print a traceback on each host."""
    if path.endswith(".py") and not Path(path).is_file():
        raise ConfigError(f"there is no script {path}: give its path from this folder")


def describe(config: LabConfig, isolation: Isolation) -> str:
    if not isolation.networked:
        return f"UNSHAPED: {counted(config.hosts, 'host')} on loopback. No network can be made here: {isolation.reason}"
    rates = [str(rate) if rate else "unshaped" for rate in config.rates()]
    links = rates[0] if len(set(rates)) == 1 else ", ".join(f"host{host} {rate}" for host, rate in enumerate(rates))
    return f"{counted(config.hosts, 'host')} on a bridge ({isolation.name}), links: {links}"


def dry_run(plan: Plan, isolation: Isolation) -> list[str]:
    """Every command, in order. ``HOST0`` stands for the process that holds the namespace of host 0."""
    commands = [launch_command(isolation)]
    commands += [*bridge_commands(), *naming_commands(SCRATCH)] if isolation.networked else []
    for index, host in enumerate(plan.hosts):
        pid = host.name.upper()
        if isolation.networked:
            commands += [holder_command(host), *host_commands(index, host, pid)]
    commands += [store_command(plan)] if plan.store else []
    lines = [shlex.join(command) for command in commands]
    for host in plan.hosts:
        words = [f"{name}={value}" for name, value in host.environment.items()]
        command = host_launch(host, host.name.upper()) if isolation.networked else list(host.command)
        lines.append(shlex.join(["env", *words, *command]))
    return lines


def run_clean(words: Sequence[str] = (), *, dry_run: bool = False) -> None:
    """``words``: what was typed after ``clean``."""
    if others := [word for word in words if word != "--dry-run"]:
        raise ConfigError(
            f"lab clean takes --dry-run and nothing else, got {' '.join(others)}; a program called clean is run by "
            "`lioncub lab -- clean`"
        )
    for line in registry.clean(dry_run=dry_run or bool(words)) or ["nothing to clean"]:
        print(line)
