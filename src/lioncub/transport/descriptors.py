"""The limit of file descriptors of this process, and the sockets with which gloo listens.

gloo keeps the port of every process group open after all workers have connected. Each connection from outside takes a
descriptor for good, and gloo aborts the process when it cannot accept one.
"""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

_OWN = Path("/proc/self/fd")
_DETAILS = Path("/proc/self/fdinfo")
_EPOLL = "anon_inode:[eventpoll]"
"""What /proc shows for an epoll instance; every gloo group has one, which watches the group's port."""
_FALSE = ("", "0", "n", "no", "false")


def limit() -> int:
    """The limit of file descriptors of this process."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_limit() -> None:
    """Raise the limit, usually 1,024, to the most that the system allows this process."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextmanager
def closing_ports() -> Iterator[None]:
    """Close the ports of the gloo groups that are made in the block, once it has ended.

    Example::

        with lioncub.distributed.closing_ports():
            mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("replicate", "shard"))

    Groups that connect later than they are made (TORCH_GLOO_LAZY_INIT) keep their ports.
    """
    if not _gloo_connects_at_once():
        yield
        return
    before = set(_descriptors("socket:"))
    watches = {number for number, _ in _descriptors(_EPOLL)}
    yield
    watched = {target for watch, _ in _descriptors(_EPOLL) if watch not in watches for target in _targets(watch)}
    for descriptor, _ in set(_descriptors("socket:")) - before:
        if descriptor in watched and _is_port(descriptor):
            _replace(descriptor)


def _gloo_connects_at_once() -> bool:
    is_lazy = os.environ.get("TORCH_GLOO_LAZY_INIT", "").lower() not in _FALSE
    return not is_lazy and os.environ.get("GLOO_DEVICE_TRANSPORT", "TCP") == "TCP" and _DETAILS.is_dir()


def _descriptors(kind: str) -> Iterator[tuple[int, str]]:
    """Open descriptors of one kind, with the text that identifies the file behind each."""
    for entry in _OWN.iterdir():
        with suppress(OSError):  # closed meanwhile
            meaning = os.readlink(entry)
            if meaning.startswith(kind):
                yield int(entry.name), meaning


def _targets(watch: int) -> list[int]:
    """The descriptors that an epoll instance watches."""
    with suppress(OSError):
        lines = (_DETAILS / str(watch)).read_text().splitlines()
        return [int(line.split()[1]) for line in lines if line.startswith("tfd:")]
    return []


def _is_port(descriptor: int) -> bool:
    with suppress(OSError), closing(socket.socket(fileno=os.dup(descriptor))) as own:
        is_tcp = own.family in (socket.AF_INET, socket.AF_INET6) and own.type == socket.SOCK_STREAM
        return is_tcp and bool(own.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    return False


def _replace(descriptor: int) -> None:
    """Replace a listening socket of gloo by a local one that no network reaches, under the same descriptor.

    The old socket is closed and epoll drops it. gloo's next accept finds no connection; on a socket that is shut down,
    or on another file under this descriptor, it would fail and abort the process.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as nowhere:
        nowhere.bind("")  # Linux makes up a name
        nowhere.listen(0)
        os.dup2(nowhere.fileno(), descriptor, inheritable=False)
