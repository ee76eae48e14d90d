"""Bytes that crossed an interface, as the kernel counts them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lioncub.tools.lab.errors import LabError


@dataclass(frozen=True)
class Counters:
    """Since the interface was made, with the headers of what passed it."""

    sent_bytes: int = 0
    received_bytes: int = 0

    def since(self, before: Counters) -> Counters:
        return Counters(self.sent_bytes - before.sent_bytes, self.received_bytes - before.received_bytes)


def read_counters(interface: str, process: str = "self") -> Counters:
    """The counters of an interface in the network namespace of a process."""
    path = Path(f"/proc/{process}/net/dev")
    for line in path.read_text(encoding="ascii").splitlines():
        name, colon, figures = line.partition(":")
        if colon and name.strip() == interface:
            received, sent = figures.split()[0], figures.split()[8]
            return Counters(int(sent), int(received))
    raise LabError(f"there is no interface {interface} in {path}")
