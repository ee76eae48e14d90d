"""Start-up of the default process group: rendezvous, connections, and listening sockets on the narrowest interface.

It takes the place of ``torch.distributed.init_process_group``, whose workers try to connect to those of the previous
attempt when torchrun restarts them, listen on every interface, and wait half an hour for a worker that hangs.
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from lioncub.distributed.environment import Launch
from lioncub.distributed.failure_detection import PATIENCE_SECONDS, report_alive, silent_workers
from lioncub.distributed.launcher import end_with_parent
from lioncub.distributed.rendezvous import meet
from lioncub.errors import ConfigError, PeerLostError, PeerTimeoutError
from lioncub.transport.comm import peer_error
from lioncub.transport.descriptors import closing_ports, raise_limit
from lioncub.transport.interfaces import addresses

__all__ = ["TIMEOUT", "World", "closing_ports", "init"]

TIMEOUT = timedelta(minutes=5)
"""Longer than what workers do apart, such as an evaluation on one of them; short for a job that hangs."""

REFUSED_SECONDS = 3.0
"""The time for which a store may refuse connections before it counts as lost."""


@dataclass(frozen=True)
class World:
    """This worker's rank and the number of workers. As a context manager it disconnects at the end of the block."""

    rank: int
    size: int
    local_rank: int
    """The rank among the workers of this machine."""
    device: torch.device

    def close(self) -> None:
        """Destroy the process group. Does nothing in a world of one, or the second time."""
        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def init(backend: str | None = None, *, timeout: timedelta = TIMEOUT, listen: str | None = None) -> World:
    """Connect this process with the other workers that torchrun, or another launcher with its variables, has started.

    Args:
        backend: of torch.distributed; None is NCCL where there is CUDA, else gloo.
        timeout: how long a worker waits for another one, at the start and in every exchange, before it raises.
        listen: where other workers connect to: "loopback", an interface's name or one of its addresses. None is
            what GLOO_SOCKET_IFNAME says; else loopback if all workers are on this machine, and the interface
            towards MASTER_ADDR if they are not.

    Without a launcher's variables it is a world of one and there is no process group. Once workers are connected they
    listen no longer; where groups are made later, use :func:`closing_ports`. The limit of open files is raised to what
    the system allows.

    Under torchrun this process ends with torchrun's agent: it gets SIGTERM when the agent is gone, and SIGKILL if it is
    still there 30 seconds later.

    It may be called by every attempt that torchrun makes (``--max-restarts``). Raises :class:`PeerTimeoutError` or
    :class:`PeerLostError` that names the workers which did not come.

    Example::

        with lioncub.distributed.init() as world:
            model = make_model().to(world.device)
            ...
    """
    if dist.is_available() and dist.is_initialized():
        raise ConfigError("there is a process group already: call lioncub.distributed.init() once, in its place")
    launch = Launch.of(os.environ)
    backend = backend or ("nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo")
    device = torch.device("cuda", launch.local_rank if launch else 0) if "nccl" in backend else torch.device("cpu")
    _check_backend(backend)
    if launch is None:
        return World(0, 1, 0, device)
    if launch.has_agent:
        end_with_parent()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    raise_limit()
    _choose_interface(launch, listen)
    _connect(launch, backend, timeout, listen)
    return World(launch.rank, launch.size, launch.local_rank, device)


def _check_backend(backend: str) -> None:
    for part in backend.split(","):
        name = part.rpartition(":")[2].strip()
        if not dist.is_backend_available(name):
            raise ConfigError(f"backend={backend!r}: this build of torch has no {name!r} here; gloo works on every CPU")


def _choose_interface(launch: Launch, listen: str | None) -> None:
    """Set the interface in the environment, where groups that are made later read it as well."""
    chosen = os.environ.get("GLOO_SOCKET_IFNAME")
    if listen is None and chosen:
        known = set(addresses().values())
        if unknown := [name for name in chosen.split(",") if name not in known]:
            raise ConfigError(
                f"GLOO_SOCKET_IFNAME={chosen} in the environment: this machine has no interface {unknown[0]!r} with an "
                f"address; it has {', '.join(sorted(known))}"
            )
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        if listen is not None or not os.environ.get(name):
            os.environ[name] = launch.interface(listen)


def _connect(launch: Launch, backend: str, timeout: timedelta, listen: str | None) -> None:
    store = PrefixStore(f"lioncub/{launch.job}/{launch.size}", _store(launch, timeout, listen))
    attempt = _meet(store, launch, timeout)
    store = PrefixStore(attempt, store)
    try:
        with closing_ports():
            dist.init_process_group(backend, store=store, rank=launch.rank, world_size=launch.size, timeout=timeout)
    except RuntimeError as problem:
        others = [rank for rank in range(launch.size) if rank != launch.rank]
        missing = silent_workers(lambda: store, attempt, launch.rank, range(launch.size), others)
        raise peer_error(missing, problem) from problem
    report_alive(store, attempt, launch.rank)


def _meet(store: Any, launch: Launch, timeout: timedelta) -> str:
    try:
        return meet(store, launch.rank, launch.size, timeout)
    except PeerTimeoutError:
        if launch.keeps_store:  # the others want to read in it who is missing
            time.sleep(PATIENCE_SECONDS)
        raise
    except dist.DistError as problem:
        raise PeerLostError([0], f"the store at {launch.host}:{launch.port} is gone") from problem


def _store(launch: Launch, timeout: timedelta, listen: str | None) -> Any:
    """Its server, where this process has to keep it, is bound beforehand: torch would listen on every interface."""
    server, host = None, launch.host
    if launch.keeps_store:
        host = launch.store_address(listen)
        server = _server(host, launch.port)
    elif launch.agents_store and launch.local_size == launch.size:
        _check_agent(launch)
    try:
        return TCPStore(
            host,
            launch.port,
            launch.size,
            is_master=server is not None,
            timeout=timeout,
            wait_for_workers=False,
            master_listen_fd=server.detach() if server else None,
        )
    except dist.DistError as problem:
        raise peer_error([0], problem) from problem


def _check_agent(launch: Launch) -> None:
    """Raise if the agent that keeps the store has ended: a store that does not come yet would be waited for.

    On one machine it listens before any worker starts. What is not a refusal is left to the store's own time-out.
    """
    deadline = time.monotonic() + REFUSED_SECONDS
    while True:
        try:
            return socket.create_connection((launch.host, launch.port), REFUSED_SECONDS).close()
        except ConnectionRefusedError as problem:
            if time.monotonic() > deadline:
                raise PeerLostError(
                    [0], f"nobody listens at {launch.host}:{launch.port}: torchrun's agent has ended"
                ) from problem
        except OSError:
            return None
        time.sleep(0.1)


def _server(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, place = min(found, key=lambda each: each[0] != socket.AF_INET)
        return socket.create_server(place[:2], family=family, backlog=1024)
    except OSError as problem:
        raise ConfigError(
            f"the first worker cannot listen on {host}:{port} ({problem.strerror}): MASTER_ADDR must be an address of "
            "its machine and MASTER_PORT free there, or say listen=… which address of it MASTER_ADDR leads to"
        ) from problem
