"""TCP sockets between workers on CPUs: one for each pair, and a thread in C++ that sends and receives their messages.

gloo announces a message and waits for the receiver's answer before it sends it. Here a message is sent at once, which
costs less processor time, and one that is longer than expected does not end the process. connecting.py makes the
connections.
"""

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

import torch
from torch import Tensor

if find_spec("lioncub.transport._sockets") is None:
    _problem = "the C++ part of the transport was not built when lioncub was installed, or not on Linux"
else:
    try:
        from lioncub.transport import _sockets
    except ImportError as problem:
        _problem = f"the C++ part of the transport does not load: {problem}"
    else:
        _problem = ""

WAIT_SECONDS = 0.25
"""The longest wait without a look at signals to Python."""


class Mesh:
    """Connections to all other workers. ``sockets`` is in the order of the workers, None in this worker's place."""

    def __init__(self, sockets: Sequence[socket.socket | None], timeout_seconds: float) -> None:
        numbers = [-1 if each is None else each.detach() for each in sockets]
        self._native = _sockets.Mesh(numbers, timeout_seconds)
        _meshes.add(self)

    def post(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor], tag: int) -> Post:
        """Send and receive byte tensors, by number of the peer."""
        return Post(self._native, outgoing, incoming, tag)

    def close(self) -> None:
        """Close all connections. Operations under way fail, here and on every peer."""
        self._native.close()

    def close_in_child(self) -> None:
        """Close a forked process's copies of the sockets, without which no peer would see a connection end."""
        self._native.close_in_child()


class Post:
    """Sends and receives that have been posted, and the memory that they read and write."""

    def __init__(
        self, mesh: _sockets.Mesh, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor], tag: int
    ) -> None:
        owners = [*outgoing.values(), *incoming.values()]
        self._native = _sockets.Post(mesh, _parts(incoming), _parts(outgoing), tag, owners)

    def wait(self) -> tuple[int, str] | None:
        """Block until all are complete. Returns the number of a lost peer and the reason, if there is one."""
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


def close_all() -> None:
    """Close the connections of every mesh before the interpreter ends, so that no thread and no peer waits."""
    for mesh in list(_meshes):
        mesh.close()


def _after_fork() -> None:
    for mesh in list(_meshes):
        mesh.close_in_child()


os.register_at_fork(after_in_child=_after_fork)


def why_not() -> str:
    """Why this process cannot use sockets; "" if it can."""
    return _problem
