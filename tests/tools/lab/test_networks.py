"""A real network in namespaces: built, used, and always removed. Needs root or user namespaces."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest

from lioncub.tools.lab import registry
from lioncub.tools.lab.config import LabConfig
from lioncub.tools.lab.isolation import WAYS, Isolation, find_isolation, probe
from lioncub.tools.lab.plan import plan_of
from lioncub.tools.lab.session import free_port, running

ISOLATION = find_isolation()
networked = pytest.mark.skipif(not ISOLATION.networked, reason=f"no network can be made here: {ISOLATION.reason}")
TOKEN = "LIONCUB_LAB_TEST"
GONE_SECONDS = 20.0


def lab(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "lioncub.tools.cli", "lab", *arguments],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where tests run in the background
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def script(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


EXCHANGE = """
import os, socket, sys, time
rank, size, volume = int(os.environ["RANK"]), 2, int(sys.argv[1])
if rank == 0:
    server = socket.create_server((os.environ["MASTER_ADDR"], 5000))
    other, _ = server.accept()
    start, received = time.monotonic(), 0
    while received < volume:
        received += len(other.recv(1 << 16))
    print("seconds", time.monotonic() - start)
else:
    for _ in range(100):
        try:
            other = socket.create_connection((os.environ["MASTER_ADDR"], 5000))
            break
        except OSError:
            time.sleep(0.05)
    other.sendall(bytes(volume))
    other.shutdown(socket.SHUT_WR)
    other.recv(1)
"""


@networked
def test_what_runs_on_a_host_cannot_change_the_network() -> None:
    code, out, err = finish(lab("--hosts", "1", "--", "ip", "link", "set", "eth0", "down"))
    assert code != 0, err
    assert "not permitted" in out + err


@networked
@pytest.mark.parametrize("way", WAYS)
def test_bytes_and_seconds_are_those_of_the_link(way: str, tmp_path: Path) -> None:
    if (way == "root" and os.geteuid()) or probe(WAYS[way]):
        pytest.skip(f"{way} cannot be used here: {probe(WAYS[way])}")
    volume = 2_000_000
    command = (sys.executable, script(tmp_path / "exchange.txt", EXCHANGE), str(volume))
    config = LabConfig(command=command, hosts=2, rate="1gbit", host_rates=("1=10mbit",), counters=tmp_path / "c.json")
    isolation = Isolation(way, WAYS[way])
    with (tmp_path / "log").open("w+b") as log:
        with running(plan_of(config, networked=True, port=free_port(isolation)), isolation, log) as process:
            code = process.wait(60)
        log.seek(0)
        said = log.read().decode()
    assert code == 0, said
    found = json.loads((tmp_path / "c.json").read_text())
    assert volume < found["host1"]["sent_bytes"] < 1.06 * volume
    assert volume < found["host0"]["received_bytes"] < 1.06 * volume
    seconds = float(said.split("seconds")[1].split()[0])
    assert seconds > 0.9 * (volume * 8 / 10e6 - 0.2)  # the burst is for free


TRAIN = """
import os, socket, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
who = f"{socket.gethostname()} rank {dist.get_rank()} of {dist.get_world_size()}"
os.write(1, f"{who}: {total.item():.0f} {os.environ['LIONCUB_LAB_RATE']}\\n".encode())
dist.destroy_process_group()
"""


@pytest.mark.slow
@networked
def test_torchrun_agents_meet_over_the_network(tmp_path: Path) -> None:
    train = script(tmp_path / "train.py", TRAIN)
    process = lab("--hosts", "2", "--rate", "100mbit", "--workers-per-host", "2", "--", train, "--some", "option")
    code, out, err = finish(process)
    assert code == 0, out + err
    for rank in range(4):
        assert f"[host{rank // 2}] host{rank // 2} rank {rank} of 4: 4 100mbit" in out
    assert "links: 100mbit" in err
    assert "host1: sent" in out


@networked
def test_a_host_that_fails_ends_the_lab_with_its_exit_code() -> None:
    started = time.monotonic()
    program = "import os, sys, time; time.sleep(0.2 if os.environ['RANK'] == '1' else 300); sys.exit(7)"
    code, out, _ = finish(lab("--hosts", "2", "--", sys.executable, "-c", program))
    assert code == 7
    assert "[host1] ended with exit code 7" in out
    assert time.monotonic() - started < 100


def everything_with(token: str) -> list[int]:
    """Processes that inherited a token, whatever they have become."""
    found = psutil.process_iter(["environ", "status"])
    ended = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    return [
        each.pid
        for each in found
        if (each.info["environ"] or {}).get(TOKEN) == token and each.info["status"] not in ended
    ]


def program(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.NoSuchProcess:
        return ""


def namespaces_of(pids: Sequence[int]) -> set[str]:
    found = set()
    for pid in pids:
        try:
            found.add(os.readlink(f"/proc/{pid}/ns/net"))
        except OSError:
            continue
    return found


def all_namespaces() -> set[str]:
    return namespaces_of(psutil.pids())


def interfaces() -> set[str]:
    return set(psutil.net_if_stats())


def wait_until(true: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.slow
@networked
def test_killed_at_any_moment_it_leaves_nothing(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    moments = random.Random(seed)
    before, interfaces_before = all_namespaces(), interfaces()
    train = script(tmp_path / "train.py", "import time\ntime.sleep(300)\n")
    longest = 0.0
    for number in range(20):
        token = f"{os.getpid()}-{number}"
        command = [train] if number % 4 == 0 else ["sleep", "300"]
        started = time.monotonic()
        process = lab("--hosts", "3", "--", *command, **{TOKEN: token})
        if number == 0:  # a switch and three hosts, for once
            assert wait_until(lambda: len(namespaces_of(everything_with(token)) - before) == 4, 100)  # noqa: B023
            longest = 1.3 * (time.monotonic() - started)
        else:
            time.sleep(moments.uniform(0.0, longest))
        used = namespaces_of(everything_with(token)) - before
        process.send_signal([signal.SIGKILL, signal.SIGTERM, signal.SIGINT][number % 3])
        assert wait_until(lambda: not everything_with(token), GONE_SECONDS), f"seed {seed}, lab {number}"  # noqa: B023
        finish(process)
        assert all_namespaces().isdisjoint(used), f"seed {seed}, lab {number}"
        assert interfaces() == interfaces_before


@pytest.mark.slow
@networked
def test_clean_ends_a_lab_that_its_owner_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    token = f"{os.getpid()}-clean"
    process = lab("--hosts", "2", "--", "sleep", "300", **{TOKEN: token})
    assert wait_until(lambda: [program(pid) for pid in everything_with(token)].count("sleep") == 2, 60)
    (entry,) = (tmp_path / f"lioncub-lab-{os.getuid()}").glob("*.json")
    frozen = [pid for pid in everything_with(token) if pid != process.pid]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)  # so that nothing notices the death of the owner
    assert "left the lab" in finish(lab("clean"))[1]
    process.kill()
    process.wait()
    time.sleep(0.5)
    assert len(everything_with(token)) == len(frozen)
    assert "ended the lab" in finish(lab("clean"))[1]
    assert wait_until(lambda: not everything_with(token), GONE_SECONDS)
    finish(process)
    assert not entry.exists()
    assert "nothing to clean" in finish(lab("clean"))[1]


@pytest.mark.slow
def test_without_a_network_the_hosts_are_on_loopback(tmp_path: Path) -> None:
    isolation = Isolation("loopback", networked=False, reason="because")
    config = LabConfig(command=(script(tmp_path / "train.py", TRAIN),), hosts=2)
    with (tmp_path / "log").open("w+b") as log:
        with running(plan_of(config, networked=False, port=free_port(isolation)), isolation, log) as process:
            code = process.wait(100)
        log.seek(0)
        said = log.read().decode()
    assert code == 0, said
    assert "rank 1 of 2: 2 unshaped" in said


@pytest.mark.slow
def test_loopback_hosts_end_with_the_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolation = Isolation("loopback", networked=False)
    token = f"{os.getpid()}-loopback"
    monkeypatch.setenv(TOKEN, token)
    train = script(tmp_path / "train.py", "import time\nprint('here', flush=True)\ntime.sleep(300)\n")
    log = tmp_path / "log"
    with log.open("wb") as file:
        plan = plan_of(LabConfig(command=(train,), hosts=2), networked=False, port=free_port(isolation))
        with running(plan, isolation, file):
            assert wait_until(lambda: log.read_text().count("here") == 2, 60)
            assert len(everything_with(token)) >= 5  # the lab, two agents, two workers
    assert everything_with(token) == []


def test_a_file_in_the_registry_that_makes_no_sense_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    (registry.folder() / "1.json").write_text("{")
    assert registry.clean() == ["removed 1.json, which could not be read"]
    assert registry.clean() == []


@networked
def test_output_that_nobody_reads_ends_the_lab() -> None:
    token = f"{os.getpid()}-pipe"
    process = lab("--hosts", "2", "--", "yes", **{TOKEN: token})
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert wait_until(lambda: not everything_with(token), GONE_SECONDS)
    assert process.stderr is not None
    process.stderr.close()
    assert process.wait() == 130


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["owner", "lab"])
def test_a_loopback_lab_that_is_killed_leaves_nothing(tmp_path: Path, victim: str) -> None:
    token = f"{os.getpid()}-killed"
    train = script(tmp_path / "train.py", "import time\ntime.sleep(300)\n")
    program = (
        "from lioncub.tools.lab import run\n"
        "from lioncub.tools.lab.config import LabConfig\n"
        "from lioncub.tools.lab.isolation import Isolation\n"
        "run.find_isolation = lambda: Isolation('loopback', networked=False, reason='a test')\n"
        f"run.run_lab(LabConfig(command=({train!r},), hosts=2))"
    )
    process = subprocess.Popen([sys.executable, "-c", program], env=os.environ | {TOKEN: token})
    assert wait_until(lambda: len(everything_with(token)) >= 6, 60)  # the owner, the lab, two agents, two workers
    if victim == "owner":
        process.kill()
    else:
        (supervisor,) = (
            pid for pid in everything_with(token) if "lioncub.tools.lab.supervisor" in psutil.Process(pid).cmdline()
        )
        os.kill(supervisor, signal.SIGKILL)
    process.wait(GONE_SECONDS)
    assert wait_until(lambda: not everything_with(token), GONE_SECONDS)
