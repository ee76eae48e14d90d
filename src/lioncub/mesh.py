"""Connections of our own between workers on CPUs: one for each pair, and a thread in C++ that moves their messages.

gloo announces every message and has it asked for before it leaves; here it leaves at once, costs less processor time,
and one that is longer than expected does not end the process. Workers find each other through their process group,
whose backend goes on carrying what is said before there are connections.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from hmac import compare_digest
from typing import Any

import torch
from torch import Tensor

from lioncub.errors import ConfigError
from lioncub.interfaces import address_of
from lioncub.kernels.native import extension
from lioncub.kernels.native import why_not as native_problem

VERSION = 1
"""Of the messages' heads and of what is said at the start."""
TOKEN = 16
PATIENCE_SECONDS = 20.0
"""For all connections together."""
STRANGER_SECONDS = 2.0
"""For whoever connects to say who it is."""
WAIT_SECONDS = 0.25
"""How long a signal to Python may have to wait."""

_OFFER = struct.Struct(f"<BBH{TOKEN}s108s")
_HELLO = struct.Struct(f"<4sBxHI{TOKEN}s")
_MAGIC = b"lcub"

Gather = Callable[[bytes], list[bytes]]
"""What every worker says, in their order, of one length; all call it together."""


@dataclass(frozen=True)
class Offer:
    """Where a worker can be reached, with what only its peers know; without a port: not at all."""

    host: str = ""
    port: int = 0
    token: bytes = bytes(TOKEN)

    @classmethod
    def to(cls, server: socket.socket) -> Offer:
        host, port = server.getsockname()[:2]
        return cls(host, port, secrets.token_bytes(TOKEN))

    def pack(self) -> bytes:
        return _OFFER.pack(VERSION, bool(self.port), self.port, self.token, self.host.encode())

    @classmethod
    def unpack(cls, data: bytes) -> Offer:
        version, offers, port, token, host = _OFFER.unpack(data)
        return cls(host.rstrip(b"\0").decode(), port, token) if offers and version == VERSION else cls()


class Mesh:
    """Connections to all other workers. ``sockets`` by their number; this worker's own is None."""

    def __init__(self, sockets: Sequence[socket.socket | None], timeout_seconds: float) -> None:
        numbers = [-1 if each is None else each.detach() for each in sockets]
        self._native = extension().Mesh(numbers, timeout_seconds)
        _meshes.add(self)

    def post(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor], tag: int) -> Post:
        """Send and receive byte tensors, by number of the peer."""
        return Post(self._native, outgoing, incoming, tag)

    def close(self) -> None:
        """Every peer sees it at once; what is under way fails."""
        self._native.close()

    def close_in_child(self) -> None:
        """A forked process must not hold connections: their ends would go unseen."""
        self._native.close_in_child()


class Post:
    """Messages on their way, and the memory they come from and go to."""

    def __init__(self, mesh: Any, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor], tag: int) -> None:
        owners = [*outgoing.values(), *incoming.values()]
        self._native = extension().Post(mesh, _parts(incoming), _parts(outgoing), tag, owners)

    def wait(self) -> tuple[int, str] | None:
        """Block until all have been moved; or the number of a peer that is lost, and why."""
        while not self._native.wait(WAIT_SECONDS):
            pass
        peer = self._native.failed_peer
        return None if peer < 0 else (peer, self._native.problem)


def _parts(messages: Mapping[int, Tensor]) -> list[tuple[int, int, int]]:
    for message in messages.values():
        assert message.dtype == torch.uint8
        assert message.is_contiguous()
    return [(peer, message.data_ptr(), message.numel()) for peer, message in messages.items()]


_meshes: weakref.WeakSet[Mesh] = weakref.WeakSet()


def _after_fork() -> None:
    for mesh in list(_meshes):
        mesh.close_in_child()


os.register_at_fork(after_in_child=_after_fork)


# ---- how workers connect --------------------------------------------------------------------------------------------


def why_not() -> str:
    """Why there can be no connections of our own; "" if there can."""
    missing = "" if hasattr(extension(), "Mesh") else "it was built for another system than Linux"
    return native_problem() or missing


def connect(gather: Gather, worker: int, timeout_seconds: float, *, willing: bool = True) -> Mesh | None:
    """Connect all workers, who call it together; None on all of them where one cannot, or is not willing."""
    server = _listen() if willing and not why_not() else None
    offer = Offer.to(server) if server else Offer()
    offers = [Offer.unpack(data) for data in gather(offer.pack())]
    if server is None or not all(each.port for each in offers):
        if server is not None:
            server.close()
        return None
    problem, sockets = "", {}
    with closing(server):
        try:
            sockets = _meet(server, offers, worker, min(PATIENCE_SECONDS, timeout_seconds))
        except OSError as error:
            problem = str(error)
    connected = [data == b"\1" for data in gather(b"\0" if problem else b"\1")]
    if all(connected):
        return Mesh([sockets.get(number) for number in range(len(offers))], timeout_seconds)
    _close_all(sockets.values())
    if problem:
        warnings.warn(f"messages go through the process group's backend, and slower: {problem}", stacklevel=2)
    return None


def _listen() -> socket.socket | None:
    """Where gloo listens: GLOO_SOCKET_IFNAME, else the address of this machine's name, else loopback."""
    chosen = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    for host in [chosen] if chosen else [socket.gethostname(), "127.0.0.1"]:
        with suppress(OSError, ConfigError):
            address = address_of(host) if chosen else host
            family, *_, place = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
            return socket.create_server(place[:2], family=family, backlog=1024)
    return None


def _meet(
    server: socket.socket, offers: Sequence[Offer], worker: int, patience_seconds: float
) -> dict[int, socket.socket]:
    """Call every worker before this one; answer every one after it."""
    deadline = time.monotonic() + patience_seconds
    met: dict[int, socket.socket] = {}
    try:
        for peer in range(worker):
            met[peer] = _call(offers[peer], worker, deadline)
        while len(met) < len(offers) - 1:
            server.settimeout(max(deadline - time.monotonic(), 1e-3))
            connection, _ = server.accept()
            caller = _caller(connection, offers[worker].token, deadline)
            if caller is None or caller in met or not worker < caller < len(offers):
                connection.close()
            else:
                met[caller] = connection
    except OSError as problem:
        _close_all(met.values())
        missing = [peer for peer in range(len(offers)) if peer not in met and peer != worker]
        raise OSError(f"worker {worker} did not reach workers {missing} by sockets of its own ({problem})") from problem
    for connection in met.values():
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return met


def _call(offer: Offer, worker: int, deadline: float) -> socket.socket:
    patience = max(deadline - time.monotonic(), 1e-3)
    connection = socket.create_connection((offer.host, offer.port), timeout=patience)
    try:
        connection.sendall(_HELLO.pack(_MAGIC, VERSION, 0, worker, offer.token))
    except OSError:
        connection.close()
        raise
    return connection


def _caller(connection: socket.socket, token: bytes, deadline: float) -> int | None:
    """Who has connected; None for somebody who is no worker of this group."""
    until = min(deadline, time.monotonic() + STRANGER_SECONDS)
    data = b""
    with suppress(OSError):
        while len(data) < _HELLO.size:
            connection.settimeout(max(until - time.monotonic(), 1e-3))
            more = connection.recv(_HELLO.size - len(data))
            if not more:
                return None
            data += more
        magic, version, _, worker, presented = _HELLO.unpack(data)
        if (magic, version) == (_MAGIC, VERSION) and compare_digest(presented, token):
            return int(worker)
    return None


def _close_all(connections: Iterable[socket.socket]) -> None:
    for connection in connections:
        connection.close()
