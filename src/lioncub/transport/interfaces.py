"""The network interfaces of this machine: which one carries an address, and which one leads to another machine."""

from __future__ import annotations

import fcntl
import socket
import struct
from ipaddress import ip_address
from pathlib import Path

from lioncub.errors import ConfigError

LOOPBACK = "lo"
_ELSEWHERE = "192.0.2.1"
"""An address reserved for documentation: no machine has it."""
_SIOCGIFADDR = 0x8915
_ADDRESS = slice(20, 24)
"""The place of the IPv4 address in the answer to SIOCGIFADDR."""


def addresses() -> dict[str, str]:
    """The interface of every address of this machine, IPv4 before IPv6."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asking, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # it has no IPv4 address
                continue
            found[socket.inet_ntoa(answer[_ADDRESS])] = name
    table = Path("/proc/net/if_inet6")
    for line in table.read_text().splitlines() if table.exists() else []:
        digits, *_, name = line.split()
        found[str(ip_address(bytes.fromhex(digits)))] = name
    return found


def interface_of(wanted: str) -> str:
    """From "loopback", an interface's name or an address of this machine."""
    if wanted == "loopback" or is_loopback(wanted):
        return LOOPBACK
    own = addresses()
    if wanted in own.values():
        return wanted
    if wanted not in own:
        known = ", ".join(f"{name} ({address})" for address, name in own.items())
        raise ConfigError(f"listen={wanted!r} is neither an interface nor an address of this machine: it has {known}")
    return own[wanted]


def address_of(interface: str) -> str:
    """An address of an interface, for a server to listen on."""
    for address, name in addresses().items():
        if name == interface:
            return address
    raise ConfigError(f"the interface {interface} has no address")


def is_loopback(host: str) -> bool:
    """Whether a name or an address is a loopback address, which other machines cannot reach."""
    try:
        return all(ip_address(found[4][0]).is_loopback for found in socket.getaddrinfo(host, None))
    except (OSError, ValueError):
        return False


def is_only_here(host: str) -> bool:
    """Whether a name or an address means "this machine" on every machine.

    A machine's own name can lead to its loopback too, 127.0.1.1 on Debian, but on that machine only.
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.startswith("localhost.")


def interface_towards(host: str) -> str:
    """The interface through which another machine is reached, by the routing table: no packet is sent."""
    try:
        family, *_, place = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as asking:
            asking.connect(place)
            return interface_of(asking.getsockname()[0])
    except OSError as problem:
        raise ConfigError(f"MASTER_ADDR={host!r} cannot be reached from this machine: {problem.strerror}") from problem


def interface_outwards() -> str:
    """The interface of the default route, or the first one with an address."""
    try:
        return interface_towards(_ELSEWHERE)
    except ConfigError:
        found = [name for name in addresses().values() if name != LOOPBACK]
        return found[0] if found else LOOPBACK
