"""The limit of file descriptors, and the closing of gloo's ports."""

from __future__ import annotations

import os
import resource
import select
import socket
from collections.abc import Iterator

import pytest

from lioncub.transport import descriptors
from lioncub.transport.descriptors import closing_ports


def watched_port() -> tuple[socket.socket, select.epoll]:
    """As gloo has it."""
    server, watch = socket.create_server(("127.0.0.1", 0)), select.epoll()
    server.setblocking(False)
    watch.register(server)
    return server, watch


def is_open(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def test_the_ports_that_are_opened_and_watched_in_the_block_are_closed_and_no_others() -> None:
    earlier, its_watch = watched_port()
    with closing_ports():
        plain = socket.create_server(("127.0.0.1", 0))
        ours, watch = watched_port()
        addresses = [each.getsockname() for each in (earlier, plain, ours)]
        assert is_open(addresses[2])
        ours.accept()[0].close()
    assert [is_open(address) for address in addresses] == [True, True, False]
    with pytest.raises(BlockingIOError):  # neither EINVAL nor a connection: gloo ends the process for the former
        ours.accept()
    assert watch.poll(0) == []
    for each in (earlier, its_watch, plain, ours, watch):
        each.close()


@pytest.mark.parametrize("name", ["TORCH_GLOO_LAZY_INIT", "GLOO_DEVICE_TRANSPORT"])
def test_ports_that_are_needed_later_stay_open(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")
    with closing_ports():
        server, watch = watched_port()
    assert is_open(server.getsockname())
    server.close()
    watch.close()


@pytest.fixture
def low_limit() -> Iterator[int]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 10, before[1]))
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_limit_is_raised_to_what_the_system_allows(low_limit: int) -> None:
    assert descriptors.limit() < low_limit
    descriptors.raise_limit()
    assert descriptors.limit() == low_limit
