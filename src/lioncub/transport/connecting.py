"""How workers connect: each with each, through their process group, and all of them or none.

The group's backend carries what is said before there are connections: where each worker listens, with a token that only
its peers know. Nobody listens any longer when all have come.
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
"""Of the messages' heads and of what is said at the start."""
TOKEN = 16
PATIENCE_SECONDS = 20.0
"""For all connections together."""
POLL_SECONDS = 0.02
"""For somebody to connect, before a look at how the own calls are going."""
BACKLOG = 4096
"""Connections that the system keeps until they are accepted. A call that finds it full is repeated a second later."""
ACCEPTS_AT_ONCE = 256
DESCRIPTORS_SHARE = 4
"""Connections that have not said whose they are get one of so many descriptors; then the oldest is closed."""

_OFFER = struct.Struct(f"<BBH{TOKEN}s108s")
_HELLO = struct.Struct(f"<4sBxHI{TOKEN}s")
_MAGIC = b"lcub"
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

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


def connect(gather: Gather, worker: int, timeout_seconds: float, *, willing: bool = True) -> Mesh | None:
    """Connect all workers, who call it together; None on all of them where one cannot, or is not willing."""
    server = _listen() if willing and not why_not() else None
    with server or nullcontext():
        offers = [Offer.unpack(data) for data in gather((Offer.to(server) if server else Offer()).pack())]
        if server is None or not all(offer.port for offer in offers):
            return None
        mesh, problem = None, ""
        try:
            # Others that fail at once wait for this worker in what follows, and not for longer than the time-out.
            met = _meet(server, offers, worker, min(PATIENCE_SECONDS, timeout_seconds / 3))
            mesh = Mesh([met.get(number) for number in range(len(offers))], timeout_seconds)
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
    """Where gloo listens: GLOO_SOCKET_IFNAME, else the address of this machine's name, else loopback."""
    chosen = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    for host in [chosen] if chosen else [socket.gethostname(), "127.0.0.1"]:
        with suppress(OSError, ValueError):  # ValueError: no such interface, or a name that cannot be looked up
            address = address_of(host) if chosen else host
            family, *_, place = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
            return socket.create_server(place[:2], family=family, backlog=BACKLOG)
    return None


def _meet(
    server: socket.socket, offers: Sequence[Offer], worker: int, patience_seconds: float
) -> dict[int, socket.socket]:
    """Call every worker before this one; answer every one after it."""
    deadline = time.monotonic() + patience_seconds
    met: dict[int, socket.socket] = {}
    try:
        # At the same time: who only called would let its backlog fill, where others call in vain.
        with ThreadPoolExecutor(1) as caller, closing(Reception(server, offers[worker].token)) as reception:
            calls = caller.submit(_call_all, offers[:worker], worker, deadline, met)
            while len(met) < len(offers) - 1:
                if calls.done():
                    calls.result()
                for peer, connection in reception.arrivals(deadline):
                    if peer in met or not worker < peer < len(offers):
                        connection.close()
                    else:
                        met[peer] = connection
    except OSError as problem:
        missing = [peer for peer in range(len(offers)) if peer not in met and peer != worker]
        _close_all(met.values())
        raise OSError(f"worker {worker} did not reach workers {missing} by sockets of its own ({problem})") from problem
    for connection in met.values():
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return met


def _call_all(offers: Sequence[Offer], worker: int, deadline: float, met: MutableMapping[int, socket.socket]) -> None:
    for peer, offer in enumerate(offers):
        met[peer] = _call(offer, worker, deadline)


def _call(offer: Offer, worker: int, deadline: float) -> socket.socket:
    patience = max(deadline - time.monotonic(), 1e-3)
    connection = socket.create_connection((offer.host, offer.port), timeout=patience)
    try:
        connection.sendall(_HELLO.pack(_MAGIC, VERSION, 0, worker, offer.token))
    except OSError:
        connection.close()
        raise
    return connection


class Reception:
    """Connections until they have said whose they are. Those that say nothing, however many, keep nobody waiting."""

    def __init__(self, server: socket.socket, token: bytes) -> None:
        self._server, self._token = server, token
        self._most = max(descriptors.limit() // DESCRIPTORS_SHARE, 1)
        self._said: dict[socket.socket, bytes] = {}  # the oldest first
        self._selector = DefaultSelector()
        server.setblocking(False)
        self._selector.register(server, EVENT_READ)

    def arrivals(self, deadline: float) -> Iterator[tuple[int, socket.socket]]:
        """Workers that have said who they are, with their connections; waits a while for somebody to say something."""
        patience = deadline - time.monotonic()
        if patience <= 0:
            raise TimeoutError("timed out")
        for key, _ in self._selector.select(min(patience, POLL_SECONDS)):
            if key.fileobj is self._server:
                yield from self._accept()
            elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._said:
                yield from self._listen_to(key.fileobj)

    def _accept(self) -> Iterator[tuple[int, socket.socket]]:
        for _ in range(ACCEPTS_AT_ONCE):
            if len(self._said) >= self._most:
                yield from self._drop_oldest()
            try:
                connection, _ = self._server.accept()
            except OSError as problem:
                if problem.errno not in _NO_DESCRIPTORS:
                    return  # there is none, or it has been closed again
                if not self._said:
                    raise
                yield from self._drop_oldest()
                continue
            connection.setblocking(False)
            self._said[connection] = b""
            self._selector.register(connection, EVENT_READ)
            yield from self._listen_to(connection)

    def _drop_oldest(self) -> Iterator[tuple[int, socket.socket]]:
        """Unless it is a worker's, whose word has come meanwhile."""
        oldest = next(iter(self._said))
        yield from self._listen_to(oldest)
        if oldest in self._said:
            self._turn_away(oldest)

    def _listen_to(self, connection: socket.socket) -> Iterator[tuple[int, socket.socket]]:
        try:
            more = connection.recv(_HELLO.size - len(self._said[connection]))
        except BlockingIOError:
            return
        except OSError:
            more = b""
        self._said[connection] += more
        if more and len(self._said[connection]) < _HELLO.size:
            return
        if more:
            magic, version, _, worker, token = _HELLO.unpack(self._said[connection])
            if (magic, version) == (_MAGIC, VERSION) and compare_digest(token, self._token):
                self._selector.unregister(connection)
                del self._said[connection]
                yield int(worker), connection
                return
        self._turn_away(connection)

    def _turn_away(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        del self._said[connection]
        connection.close()

    def close(self) -> None:
        _close_all(self._said)
        self._selector.close()


def _close_all(connections: Iterable[socket.socket]) -> None:
    for connection in connections:
        connection.close()
