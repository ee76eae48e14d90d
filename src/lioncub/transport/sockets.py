"""Sockets between workers on CPUs: one for each pair, and a thread in C++ that moves their messages.

gloo announces every message and has it asked for before it leaves; here it leaves at once, costs less processor time,
and one that is longer than expected does not end the process. How workers get connected is connecting.py's subject.
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
"""How long a signal to Python may have to wait."""


class Mesh:
    """Connections to all other workers. ``sockets`` by their number; this worker's own is None."""

    def __init__(self, sockets: Sequence[socket.socket | None], timeout_seconds: float) -> None:
        numbers = [-1 if each is None else each.detach() for each in sockets]
        self._native = _sockets.Mesh(numbers, timeout_seconds)
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

    def __init__(
        self, mesh: _sockets.Mesh, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor], tag: int
    ) -> None:
        owners = [*outgoing.values(), *incoming.values()]
        self._native = _sockets.Post(mesh, _parts(incoming), _parts(outgoing), tag, owners)

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


def close_all() -> None:
    """Nobody shall wait any more: the interpreter is about to end."""
    for mesh in list(_meshes):
        mesh.close()


def _after_fork() -> None:
    for mesh in list(_meshes):
        mesh.close_in_child()


os.register_at_fork(after_in_child=_after_fork)


def why_not() -> str:
    """Why there can be no sockets; "" if there can."""
    return _problem
