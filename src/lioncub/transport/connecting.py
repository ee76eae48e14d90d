"""TCP connections between all pairs of workers, or between none.

The process group's backend carries the addresses at which workers listen, each with a random token by which its peers
authenticate themselves. All listening sockets are closed when the connections are complete.
"""

from __future__ import annotations

import errno
import os
import secrets
import socket
import struct
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass
from hmac import compare_digest
from selectors import EVENT_READ, DefaultSelector

from lioncub.errors import name_ranks
from lioncub.transport import descriptors
from lioncub.transport.interfaces import address_of
from lioncub.transport.sockets import Mesh, why_not

VERSION = 1
"""The version of the message heads and of the handshake."""
TOKEN = 16
PATIENCE_SECONDS = 20.0
"""The time-out of all connections together."""
POLL_SECONDS = 0.02
"""The longest wait for an incoming connection between two looks at the outgoing ones."""
BACKLOG = 4096
"""Connections that the system holds until they are accepted. TCP tries again a second after it finds no room."""
ACCEPTS_AT_ONCE = 256
DESCRIPTORS_SHARE = 4
"""Unauthenticated connections may use one in so many of the file descriptors; beyond that the oldest is closed."""

_OFFER = struct.Struct(f"<BBH{TOKEN}s108s")
_HELLO = struct.Struct(f"<4sBxHI{TOKEN}s")
_MAGIC = b"lcub"
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Gather = Callable[[bytes], list[bytes]]
"""An all-gather of bytes of one length, in rank order."""


@dataclass(frozen=True)
class Offer:
    """A worker's listening address and its token; port 0: the worker does not listen."""

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


def connect(gather: Gather, worker: int, timeout_seconds: float, *, willing: bool = True) -> Mesh | None:
    """Connect all workers. A collective call; None on all workers where one cannot connect or is not ``willing``."""
    server = _listen() if willing and not why_not() else None
    with server or nullcontext():
        offers = [Offer.unpack(data) for data in gather((Offer.to(server) if server else Offer()).pack())]
        if server is None or not all(offer.port for offer in offers):
            return None
        mesh, problem = None, ""
        try:
            # Workers that failed already wait for this one in the all-gather below, at most for the group's time-out.
            connections = _connect_pairs(server, offers, worker, min(PATIENCE_SECONDS, timeout_seconds / 3))
            mesh = Mesh([connections.get(number) for number in range(len(offers))], timeout_seconds)
        except (OSError, RuntimeError) as error:
            problem = str(error)
    failed: list[int] | None = None
    try:
        answers = gather(b"\0" if mesh is None else b"\1")
        failed = [number for number, data in enumerate(answers) if data != b"\1"]
    finally:
        if mesh is not None and failed != []:
            mesh.close()
    if failed:
        problem = problem or f"{name_ranks(failed)} could not make sockets"
        warnings.warn(f"messages go through the process group's backend, and slower: {problem}", stacklevel=2)
    return None if failed else mesh


def _listen() -> socket.socket | None:
    """A socket that listens where gloo listens: GLOO_SOCKET_IFNAME, else this machine's host name, else loopback."""
    chosen = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    for host in [chosen] if chosen else [socket.gethostname(), "127.0.0.1"]:
        with suppress(OSError, ValueError):  # ValueError: no such interface, or a name that cannot be looked up
            address = address_of(host) if chosen else host
            family, *_, place = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
            return socket.create_server(place[:2], family=family, backlog=BACKLOG)
    return None


def _connect_pairs(
    server: socket.socket, offers: Sequence[Offer], worker: int, patience_seconds: float
) -> dict[int, socket.socket]:
    """Connect to every worker of lower rank, accept a connection from every worker of higher rank."""
    deadline = time.monotonic() + patience_seconds
    connections: dict[int, socket.socket] = {}
    try:
        # Concurrently: a worker that connects before it accepts lets its backlog fill, and its peers fail to connect.
        with ThreadPoolExecutor(1) as caller, closing(Unauthenticated(server, offers[worker].token)) as unauthenticated:
            calls = caller.submit(_dial_all, offers[:worker], worker, deadline, connections)
            while len(connections) < len(offers) - 1:
                if calls.done():
                    calls.result()
                for peer, connection in unauthenticated.arrivals(deadline):
                    if peer in connections or not worker < peer < len(offers):
                        connection.close()
                    else:
                        connections[peer] = connection
    except OSError as problem:
        missing = [peer for peer in range(len(offers)) if peer not in connections and peer != worker]
        _close_all(connections.values())
        raise OSError(f"worker {worker} did not reach workers {missing} by sockets of its own ({problem})") from problem
    for connection in connections.values():
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connections


def _dial_all(
    offers: Sequence[Offer], worker: int, deadline: float, connections: MutableMapping[int, socket.socket]
) -> None:
    for peer, offer in enumerate(offers):
        connections[peer] = _dial(offer, worker, deadline)


def _dial(offer: Offer, worker: int, deadline: float) -> socket.socket:
    patience = max(deadline - time.monotonic(), 1e-3)
    connection = socket.create_connection((offer.host, offer.port), timeout=patience)
    try:
        connection.sendall(_HELLO.pack(_MAGIC, VERSION, 0, worker, offer.token))
    except OSError:
        connection.close()
        raise
    return connection


class Unauthenticated:
    """Unauthenticated connections: accepted, but no valid token has arrived yet. They delay no authenticated worker."""

    def __init__(self, server: socket.socket, token: bytes) -> None:
        self._server, self._token = server, token
        self._most = max(descriptors.limit() // DESCRIPTORS_SHARE, 1)
        self._received: dict[socket.socket, bytes] = {}  # the bytes of each so far, the oldest connection first
        self._selector = DefaultSelector()
        server.setblocking(False)
        self._selector.register(server, EVENT_READ)

    def arrivals(self, deadline: float) -> Iterator[tuple[int, socket.socket]]:
        """Workers that have authenticated themselves, with their connections. Waits for at most ``POLL_SECONDS``."""
        patience = deadline - time.monotonic()
        if patience <= 0:
            raise TimeoutError("timed out")
        for key, _ in self._selector.select(min(patience, POLL_SECONDS)):
            if key.fileobj is self._server:
                yield from self._accept()
            elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._received:
                yield from self._read_token(key.fileobj)

    def _accept(self) -> Iterator[tuple[int, socket.socket]]:
        for _ in range(ACCEPTS_AT_ONCE):
            if len(self._received) >= self._most:
                yield from self._drop_oldest()
            try:
                connection, _ = self._server.accept()
            except OSError as problem:
                if problem.errno not in _NO_DESCRIPTORS:
                    return  # no connection waits, or it was closed by the peer
                if not self._received:
                    raise
                yield from self._drop_oldest()
                continue
            connection.setblocking(False)
            self._received[connection] = b""
            self._selector.register(connection, EVENT_READ)
            yield from self._read_token(connection)

    def _drop_oldest(self) -> Iterator[tuple[int, socket.socket]]:
        """Close the oldest connection, unless its token has arrived in the meantime."""
        oldest = next(iter(self._received))
        yield from self._read_token(oldest)
        if oldest in self._received:
            self._reject(oldest)

    def _read_token(self, connection: socket.socket) -> Iterator[tuple[int, socket.socket]]:
        try:
            more = connection.recv(_HELLO.size - len(self._received[connection]))
        except BlockingIOError:
            return
        except OSError:
            more = b""
        self._received[connection] += more
        if more and len(self._received[connection]) < _HELLO.size:
            return
        if more:
            magic, version, _, worker, token = _HELLO.unpack(self._received[connection])
            if (magic, version) == (_MAGIC, VERSION) and compare_digest(token, self._token):
                self._selector.unregister(connection)
                del self._received[connection]
                yield int(worker), connection
                return
        self._reject(connection)

    def _reject(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        del self._received[connection]
        connection.close()

    def close(self) -> None:
        _close_all(self._received)
        self._selector.close()


def _close_all(connections: Iterable[socket.socket]) -> None:
    for connection in connections:
        connection.close()
