"""The messages of an exchange over plain TCP sockets, without gloo: what a transport of our own could reach."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector

import torch.distributed as dist
from torch import Tensor

HELLO_BYTES = 4


class Sockets:
    """A connection to every other worker of the default group."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        with socket.create_server((socket.gethostbyname(socket.gethostname()), 0), backlog=self.size) as server:
            addresses: list[tuple[str, int]] = [("", 0)] * self.size
            dist.all_gather_object(addresses, server.getsockname())
            self.to = {peer: self._call(addresses[peer]) for peer in range(self.rank)}
            self.to |= dict(self._answer(server) for _ in range(self.rank + 1, self.size))
        for connection in self.to.values():
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setblocking(False)

    def _call(self, address: tuple[str, int]) -> socket.socket:
        connection = socket.create_connection(address)
        connection.sendall(self.rank.to_bytes(HELLO_BYTES, "little"))
        return connection

    def _answer(self, server: socket.socket) -> tuple[int, socket.socket]:
        connection, _ = server.accept()
        return int.from_bytes(connection.recv(HELLO_BYTES, socket.MSG_WAITALL), "little"), connection

    def two_phases(self, outgoing: Tensor, incoming: Tensor) -> None:
        """Twice a row to each peer and a row from each, the second time when all of the first have come."""
        for _ in range(2):
            self._swap(*({peer: rows[peer].numpy().data for peer in self.to} for rows in (outgoing, incoming)))

    def _swap(self, unsent: Mapping[int, memoryview], missing: Mapping[int, memoryview]) -> None:
        left = {EVENT_WRITE: dict(unsent), EVENT_READ: dict(missing)}
        with DefaultSelector() as selector:
            for peer, connection in self.to.items():
                selector.register(connection, EVENT_READ | EVENT_WRITE, peer)
            while selector.get_map():
                for key, events in selector.select():
                    if events & EVENT_READ:
                        self._go_on(left[EVENT_READ], key.data, self.to[key.data].recv_into)
                    if events & EVENT_WRITE:
                        self._go_on(left[EVENT_WRITE], key.data, self.to[key.data].send)
                    wanted = sum(event for event, parts in left.items() if key.data in parts)
                    if not wanted:
                        selector.unregister(key.fileobj)
                    elif wanted != key.events:
                        selector.modify(key.fileobj, wanted, key.data)

    @staticmethod
    def _go_on(parts: dict[int, memoryview], peer: int, move: Callable[[memoryview], int]) -> None:
        moved = move(parts[peer])
        if not moved:
            raise ConnectionError(f"worker {peer} has closed its connection")
        parts[peer] = parts[peer][moved:]
        if not parts[peer]:
            del parts[peer]
