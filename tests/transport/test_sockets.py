"""The socket transport: several meshes in one process, over real sockets."""

from __future__ import annotations

import gc
import os
import random
import resource
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lioncub.transport import sockets
from lioncub.transport.sockets import Mesh, Post

pytestmark = pytest.mark.skipif(bool(sockets.why_not()), reason=sockets.why_not())

HEAD = struct.Struct("<IIQQ")


def data(num_bytes: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, (num_bytes,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def room(num_bytes: int) -> Tensor:
    return torch.zeros(num_bytes, dtype=torch.uint8)


def meshes(count: int, timeout_seconds: float = 30) -> list[Mesh]:
    """Workers that are connected each with each."""
    rows: list[list[socket.socket | None]] = [[None] * count for _ in range(count)]
    for a in range(count):
        for b in range(a):
            rows[a][b], rows[b][a] = socket.socketpair()
    return [Mesh(row, timeout_seconds) for row in rows]


Lone = Callable[..., tuple[Mesh, socket.socket]]


@pytest.fixture
def lone() -> Iterator[Lone]:
    """A worker with a peer that is only a socket."""
    peers = []

    def make(timeout_seconds: float = 30) -> tuple[Mesh, socket.socket]:
        ours, theirs = socket.socketpair()
        peers.append(theirs)
        return Mesh([None, ours], timeout_seconds), theirs

    yield make
    for peer in peers:
        peer.close()


def head(tag: int, size: int) -> bytes:
    """As native/mesh.cpp has it."""
    magic, mask = 0x6275636C, 2**64 - 1
    mixed = (size ^ (tag << 32 | magic)) * 0x9E3779B97F4A7C15 & mask
    return HEAD.pack(magic, tag, size, mixed ^ mixed >> 29)


def lost(post: Post) -> tuple[int, str]:
    found = post.wait()
    assert found is not None
    return found


def test_everybody_to_everybody() -> None:
    workers = meshes(4)
    sent = {(a, b): data(100_000 + 1000 * a + b, 10 * a + b) for a in range(4) for b in range(4) if a != b}
    got = {pair: room(message.numel()) for pair, message in sent.items()}
    posts = [
        worker.post(
            {b: message for (a, b), message in sent.items() if a == number},
            {a: message for (a, b), message in got.items() if b == number},
            7,
        )
        for number, worker in enumerate(workers)
    ]
    assert [post.wait() for post in posts] == [None] * 4
    assert all(torch.equal(got[pair], sent[pair]) for pair in sent)


def test_a_message_that_nobody_waits_for_yet_holds_up_no_other() -> None:
    a, b = meshes(2)
    early, late = data(3_000_000, 1), data(2_000_000, 2)
    sending = [a.post({1: early}, {}, 1), a.post({1: late}, {}, 2)]
    second, first = room(late.numel()), room(early.numel())
    assert b.post({}, {0: second}, 2).wait() is None
    assert b.post({}, {0: first}, 1).wait() is None
    assert [post.wait() for post in sending] == [None, None]
    assert torch.equal(first, early)
    assert torch.equal(second, late)


def test_messages_of_one_tag_come_in_their_order() -> None:
    a, b = meshes(2)
    sent = [data(10 + 50_000 * (number % 2), number) for number in range(20)]
    for message in sent[:10]:
        assert a.post({1: message}, {}, 3).wait() is None
    got = [room(message.numel()) for message in sent]
    waiting = [b.post({}, {0: message}, 3) for message in got]
    for message in sent[10:]:
        assert a.post({1: message}, {}, 3).wait() is None
    assert [post.wait() for post in waiting] == [None] * 20
    assert all(torch.equal(one, other) for one, other in zip(got, sent, strict=True))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 30))
def test_any_order_on_both_sides(seed: int, count: int) -> None:
    numbers = random.Random(seed)
    a, b = meshes(2)
    sent = {tag: data(numbers.randrange(1, 200_000), tag) for tag in range(count)}
    got = {tag: room(message.numel()) for tag, message in sent.items()}
    jobs: list[Callable[[], Post]] = []
    for tag in sent:
        jobs.append(lambda tag=tag: a.post({1: sent[tag]}, {}, tag))  # type: ignore[misc]
        jobs.append(lambda tag=tag: b.post({}, {0: got[tag]}, tag))  # type: ignore[misc]
    numbers.shuffle(jobs)
    assert [post.wait() for post in [job() for job in jobs]] == [None] * len(jobs)
    assert all(torch.equal(got[tag], sent[tag]) for tag in sent)


@pytest.mark.parametrize("waiting", [True, False], ids=["waited for", "not yet"])
def test_a_message_of_another_length_is_cut_off_or_leaves_the_rest_alone(lone: Lone, waiting: bool) -> None:
    a, b = meshes(2)
    long, short, after = data(100_000, 1), data(10, 2), data(500, 3)
    rooms = [torch.full((1000,), 9, dtype=torch.uint8) for _ in range(3)]
    if waiting:
        receiving = [b.post({}, {0: rooms[tag]}, tag) for tag in range(3)]
    for tag, message in enumerate((long, short, after)):
        assert a.post({1: message}, {}, tag).wait() is None
    if not waiting:
        receiving = [b.post({}, {0: rooms[tag]}, tag) for tag in range(3)]
    assert [post.wait() for post in receiving] == [None] * 3
    assert torch.equal(rooms[0], long[:1000])
    assert torch.equal(rooms[1][:10], short)
    assert torch.equal(rooms[2][:500], after)
    assert rooms[1][10:].eq(9).all()
    assert rooms[2][500:].eq(9).all()


def test_a_message_longer_than_memory_allows_is_no_message(lone: Lone) -> None:
    worker, peer = lone()
    waiting = worker.post({}, {1: room(100)}, 5)
    peer.sendall(head(5, 1 << 40))
    number, problem = lost(waiting)
    assert number == 1
    assert problem == f"it sent {1 << 40} bytes where 100 have room"


def test_too_much_that_nobody_waits_for_is_left_with_the_sender(lone: Lone) -> None:
    worker, peer = lone()
    size = 1 << 28
    peer.sendall(head(5, size + 1))
    peer.setblocking(False)
    moved, chunk = 0, bytes(1 << 16)
    while select.select([], [peer], [], 0.3)[1]:
        moved += peer.send(chunk)
    assert moved < 1 << 24, "as much as the system keeps for both"
    target = torch.empty(size + 1, dtype=torch.uint8)
    waiting = worker.post({}, {1: target}, 5)
    peer.setblocking(True)
    while moved < size + 1:
        moved += peer.send(chunk[: size + 1 - moved])
    assert waiting.wait() is None


def resident_bytes() -> int:
    return psutil.Process().memory_info().rss


SANITIZED = "san" in os.environ.get("LD_PRELOAD", "")


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's memory is more")
def test_small_messages_that_nobody_waits_for_take_no_more_memory_than_large_ones(lone: Lone) -> None:
    _worker, peer = lone()
    before = resident_bytes()
    peer.setblocking(False)
    for start in range(0, 2_000_000, 1000):
        messages = b"".join(head(tag, 1) + b"!" for tag in range(start, start + 1000))
        while messages and select.select([], [peer], [], 1)[1]:
            messages = messages[peer.send(messages) :]
        if messages:
            break
    assert messages, "the sender has to wait"
    assert resident_bytes() - before < (1 << 28) + (1 << 25)


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's memory is more")
@pytest.mark.parametrize("is_early", [True, False], ids=["not yet waited for", "waited for"])
def test_nothing_is_left_of_messages_that_have_been_received(is_early: bool) -> None:
    a, b = meshes(2)
    message, got = data(1), room(1)

    def receive(tags: range) -> None:
        for tag in tags:
            if is_early:
                assert a.post({1: message}, {}, tag).wait() is None
            waiting = b.post({}, {0: got}, tag)
            if not is_early:
                assert a.post({1: message}, {}, tag).wait() is None
            assert waiting.wait() is None

    receive(range(1000))
    before = resident_bytes()
    receive(range(1000, 11_000))
    assert resident_bytes() - before < 1 << 22


@pytest.mark.parametrize("said", [b"x" * 24, head(1, 8)[:-1] + b"?", os.urandom(64)], ids=["text", "damaged", "noise"])
def test_bytes_that_are_no_message_end_the_connection(lone: Lone, said: bytes) -> None:
    worker, peer = lone()
    waiting = worker.post({}, {1: room(8)}, 1)
    peer.sendall(said)
    assert lost(waiting) == (1, "it sent bytes that are no message")
    with suppress(ConnectionResetError):  # what it said beyond has not been read
        assert peer.recv(1) == b""


def test_a_message_in_tiny_pieces(lone: Lone) -> None:
    worker, peer = lone()
    one, two = data(37, 1), data(1, 2)
    rooms = room(37), room(1)
    waiting = [worker.post({}, {1: rooms[0]}, 8), worker.post({}, {1: rooms[1]}, 9)]
    for byte in head(8, 37) + one.numpy().tobytes() + head(9, 1) + two.numpy().tobytes():
        peer.sendall(bytes([byte]))
    assert [post.wait() for post in waiting] == [None, None]
    assert torch.equal(rooms[0], one)
    assert torch.equal(rooms[1], two)


def test_a_peer_that_ends_is_lost_at_once_and_what_it_had_sent_is_not() -> None:
    a, b, c = meshes(3, timeout_seconds=60)
    last = data(300_000)
    assert a.post({1: last}, {}, 1).wait() is None
    waiting, others = b.post({2: last}, {0: room(8)}, 2), b.post({}, {2: room(8)}, 2)
    started = time.monotonic()
    a.close()
    number, problem = lost(waiting)
    assert (number, problem.startswith("connection closed by peer")) == (0, True)
    got = room(last.numel())
    assert b.post({}, {0: got}, 1).wait() is None
    assert torch.equal(got, last)
    assert lost(b.post({0: last}, {}, 3))[0] == 0, "nothing more can be sent to it"
    assert lost(b.post({}, {0: got}, 3))[0] == 0
    assert c.post({1: data(8)}, {1: room(last.numel())}, 2).wait() is None, "the others go on"
    assert others.wait() is None
    assert time.monotonic() - started < 10


def test_a_silent_peer_is_given_up_in_time_and_sees_it() -> None:
    a, b = meshes(2, timeout_seconds=0.5)
    started = time.monotonic()
    number, problem = lost(a.post({}, {1: room(8)}, 1))
    assert number == 1
    assert problem == "timed out: not a byte moved in 0.5 s"
    assert 0.4 < time.monotonic() - started < 5
    assert lost(b.post({}, {0: room(8)}, 1))[1].startswith("connection closed by peer")


def test_a_slow_peer_is_not_given_up_while_bytes_move(lone: Lone) -> None:
    worker, peer = lone(timeout_seconds=0.5)
    sent = data(900)
    got = room(900)
    waiting = worker.post({}, {1: got}, 1)
    message = head(1, 900) + sent.numpy().tobytes()
    for place in range(0, len(message), 100):
        time.sleep(0.15)
        peer.sendall(message[place : place + 100])
    assert waiting.wait() is None
    assert torch.equal(got, sent)


@pytest.mark.parametrize("whose", ["of the message", "of others that nobody waits for"])
def test_a_peer_that_moves_a_few_bytes_now_and_then_is_given_up(lone: Lone, whose: str) -> None:
    worker, peer = lone(timeout_seconds=0.5)
    waiting = worker.post({}, {1: room(1000)}, 1)
    other = head(2, 1) + b"!"
    trickle = head(1, 1000) if whose == "of the message" else other * 20
    started = time.monotonic()
    with suppress(BrokenPipeError):  # given up
        for place in range(0, len(trickle), 5):
            peer.sendall(trickle[place : place + 5])
            time.sleep(0.1)
            if time.monotonic() - started > 5:
                break
    assert lost(waiting) == (1, "timed out: fewer than 256 bytes a second moved for 0.5 s")
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(("seconds", "meanwhile"), [(2, 0), (3, 0), (3, 10)])
def test_a_process_that_was_stopped_gives_nobody_up_for_it(seconds: int, meanwhile: int) -> None:
    """For longer than the time-out. The bytes that are there when it goes on may have come at any rate."""
    ended = subprocess.run(
        [sys.executable, "-c", STOPPED, str(seconds), str(meanwhile)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "None\n"), ended.stderr


STOPPED = """
import os, signal, socket, subprocess, sys, threading, time, torch
from lioncub.transport.sockets import Mesh
from tests.transport.test_sockets import head
ours, theirs = socket.socketpair()
mesh = Mesh([None, ours], 1.5)
got, seconds, meanwhile = torch.zeros(30, dtype=torch.uint8), int(sys.argv[1]), int(sys.argv[2])
waiting = mesh.post({}, {1: got}, 1)
theirs.sendall(head(1, 30))
time.sleep(0.3)
child = f"sleep 1; head -c {meanwhile} /dev/zero >&{theirs.fileno()}; sleep {seconds - 1}; kill -CONT {os.getpid()}"
# Not in the environment of this process: a sanitizer that is loaded first does not suit a shell.
wake = subprocess.Popen(["bash", "-c", child], pass_fds=[theirs.fileno()], env={"PATH": os.environ["PATH"]})
os.kill(os.getpid(), signal.SIGSTOP)  # the bytes come while nothing here can read them
time.sleep(0.3)
theirs.sendall(bytes(30 - meanwhile))
print(waiting.wait())
wake.wait()
"""


def test_who_has_nothing_to_wait_for_may_be_silent_for_long() -> None:
    a, b = meshes(2, timeout_seconds=0.2)
    for _ in range(2):
        time.sleep(0.5)
        got = room(4)
        waiting = b.post({}, {0: got}, 1)
        assert a.post({1: data(4)}, {}, 1).wait() is None
        assert waiting.wait() is None


def test_memory_that_is_let_go_is_not_touched_any_more(lone: Lone) -> None:
    worker, peer = lone()
    got, big = room(1000), data(20_000_000)
    receiving, sending = worker.post({}, {1: got}, 1), worker.post({1: big.clone()}, {}, 2)
    peer.sendall(head(1, 1000) + bytes([5]) * 500)
    deadline = time.monotonic() + 10
    while int(got[499]) != 5:
        assert time.monotonic() < deadline
    del receiving, sending  # half received, half sent
    gc.collect()
    before = got.clone()
    peer.sendall(bytes([6]) * 500 + head(3, 1) + b"!")
    after = room(1)
    assert worker.post({}, {1: after}, 3).wait() is None
    assert after.tolist() == [33]
    assert torch.equal(got, before)
    left = len(head(2, 0)) + big.numel()
    parts = []
    while left:
        parts.append(peer.recv(min(left, 1 << 20)))
        left -= len(parts[-1])
    assert b"".join(parts) == head(2, big.numel()) + big.numpy().tobytes(), "it arrives whole all the same"


def test_closing_ends_what_is_waited_for() -> None:
    a, b = meshes(2)
    waiting = a.post({}, {1: room(8)}, 1)
    threading.Timer(0.1, a.close).start()
    assert lost(waiting) == (1, "this worker has closed its connections")
    assert lost(a.post({1: data(8)}, {}, 1)) == (1, "this worker has closed its connections")
    a.close()
    assert lost(b.post({}, {0: room(8)}, 1))[1].startswith("connection closed by peer")


def test_no_descriptor_and_no_thread_is_left_behind() -> None:
    def numbers() -> tuple[int, int]:
        return psutil.Process().num_fds(), psutil.Process().num_threads()

    meshes(2)
    gc.collect()
    before = numbers()
    for _ in range(20):
        a, b = meshes(2)
        waiting = b.post({}, {0: room(4)}, 1)
        assert a.post({1: data(4)}, {}, 1).wait() is None
        assert waiting.wait() is None
        del a, b, waiting
        gc.collect()
    deadline = time.monotonic() + 10
    while numbers() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert numbers() <= before


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # of Python 3.12, for any process with threads
def test_a_forked_process_holds_no_connection(lone: Lone) -> None:
    worker, peer = lone()
    pid = os.fork()
    if pid == 0:
        time.sleep(20)
        os._exit(0)
    try:
        time.sleep(0.2)
        worker.close()
        assert select.select([peer], [], [], 5)[0], "the peer sees the end although the child lives on"
        assert peer.recv(1) == b""
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_processes_that_a_forked_one_forks_keep_what_is_theirs(lone: Lone) -> None:
    worker, _ = lone()
    pid = os.fork()
    if pid == 0:
        files = [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]  # they take the numbers of the sockets
        pid = os.fork()
        if pid == 0:
            try:
                for file in files:
                    os.fstat(file)
            except OSError:
                os._exit(1)
            posted = worker.post({1: data(8)}, {}, 1)
            os._exit(0 if lost(posted)[0] == 1 else 2)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer cannot do without descriptors")
def test_what_cannot_be_made_leaves_nothing_open() -> None:
    ours, theirs = socket.socketpair()
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, most))
    fillers = []
    try:
        with suppress(OSError):
            while True:
                fillers.append(os.dup(0))
        with pytest.raises(RuntimeError, match="epoll"):
            Mesh([None, ours], 30)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))
        for filler in fillers:
            os.close(filler)
    assert theirs.recv(1) == b"", "its peer sees the end"
    theirs.close()
    assert len(os.listdir("/proc/self/fd")) == before - 2


@pytest.mark.parametrize("how", ["ends", "resets"])
def test_a_peer_that_ends_while_too_much_of_it_waits_is_lost_at_once(how: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        peer = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
    worker = Mesh([None, ours], 60)
    peer.sendall(head(5, (1 << 28) + 1) + bytes(100))
    waiting = worker.post({}, {1: room(8)}, 1)
    time.sleep(0.2)
    if how == "resets":
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    started = time.monotonic()
    peer.close()
    assert lost(waiting)[1].startswith("connection closed by peer")
    assert time.monotonic() - started < 10
    used = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - used < 0.2, "the thread sleeps"


def test_many_small_messages_that_a_peer_sent_before_its_end_are_all_there(lone: Lone) -> None:
    worker, peer = lone()
    count = 2000
    peer.sendall(b"".join(head(number, 8) + number.to_bytes(8, "little") for number in range(count)))
    peer.close()
    worker.post({1: data(8)}, {}, count).wait()  # sending finds that it is gone
    for number in range(count):
        got = room(8)
        assert worker.post({}, {1: got}, number).wait() is None
        assert int.from_bytes(got.numpy().tobytes(), "little") == number


def test_a_time_out_beyond_all_clocks_is_no_overflow() -> None:
    a, b = meshes(2, timeout_seconds=1e13)
    got = room(4)
    waiting = b.post({}, {0: got}, 1)
    time.sleep(0.1)
    assert a.post({1: data(4)}, {}, 1).wait() is None
    assert waiting.wait() is None


def test_bad_peers_are_refused_before_anything_is_sent() -> None:
    (a, *_) = meshes(2)
    for peer in (-1, 0, 2):
        with pytest.raises(ValueError, match=f"there is no connection to peer {peer}"):
            a.post({peer: data(1)}, {}, 1)
    with pytest.raises(AssertionError):
        a.post({1: torch.zeros(4)}, {}, 1)
    with pytest.raises(AssertionError):
        a.post({1: data(8)[::2]}, {}, 1)


SCRIPT = """
import socket, torch
from lioncub.transport.sockets import Mesh
ours, theirs = socket.socketpair()
mesh = Mesh([None, ours], 30)
waiting = mesh.post({}, {1: torch.zeros(8, dtype=torch.uint8)}, 1)
theirs.sendall(b"half")
"""


def test_the_interpreter_ends_in_silence_with_messages_on_their_way() -> None:
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


WAITING_SCRIPT = """
import socket, sys, torch
from lioncub.transport.comm import Posted
from lioncub.transport.sockets import Mesh
from lioncub.step.in_flight import Exchanges, InFlight, _complete_all
import atexit

atexit.unregister(_complete_all)
atexit.register(_complete_all, 0.3)
ours, theirs = socket.socketpair()
mesh = Mesh([None, ours], 30)

def exchange():
    yield Posted(mesh.post({}, {1: torch.zeros(8, dtype=torch.uint8)}, 1), int)

exchanges = Exchanges(threaded=True)
exchanges.launch(InFlight(exchange(), ordered=False))
sys.exit(3)
"""


def test_a_thread_that_waits_does_not_abort_the_interpreter_that_ends() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", WAITING_SCRIPT], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (3, "")
