"""A launcher's environment, the interface to listen on, and rendezvous in a store with keys of earlier attempts."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]

import lioncub
from lioncub.distributed import environment
from lioncub.distributed.environment import Launch
from lioncub.distributed.rendezvous import meet
from lioncub.errors import AgreementError, ConfigError, PeerTimeoutError
from lioncub.transport import interfaces

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "TORCHELASTIC_RUN_ID": "job",
}
PATIENT, IMPATIENT = timedelta(seconds=20), timedelta(seconds=0.3)


def test_what_torchrun_says() -> None:
    assert Launch.of(TORCHRUN) == Launch(3, 8, 1, 2, "127.0.0.1", 29500, agents_store=True, job="job")
    assert Launch.of({}) is None


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"MASTER_ADDR": ""}, "MASTER_ADDR not set"),
        ({"RANK": "8"}, "RANK=8 is not between 0 and WORLD_SIZE=8"),
        ({"WORLD_SIZE": "many"}, "WORLD_SIZE='many'"),
        ({"MASTER_PORT": "99999"}, "MASTER_PORT=99999 in the environment is not a port"),
    ],
)
def test_what_cannot_work_is_named(change: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Launch.of(TORCHRUN | change)


def test_without_a_launcher_it_is_a_world_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in TORCHRUN:
        monkeypatch.delenv(name, raising=False)
    with lioncub.distributed.init("gloo") as world:
        assert (world.rank, world.size, world.local_rank) == (0, 1, 0)
        assert not dist.is_initialized()


def place(**changes: str) -> Launch:
    found = Launch.of(TORCHRUN | changes)
    assert found is not None
    return found


def test_one_machine_listens_on_loopback_whatever_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "interface_towards", lambda host: f"towards {host}")
    assert place().interface(None) == "lo"
    assert place(MASTER_ADDR="10.1.2.3", LOCAL_WORLD_SIZE="8").interface(None) == "lo"
    assert place(MASTER_ADDR="10.1.2.3").interface(None) == "towards 10.1.2.3"
    assert place(MASTER_ADDR="10.1.2.3").interface("loopback") == "lo"


def test_an_interface_is_found_by_its_name_or_address() -> None:
    assert interfaces.addresses()["127.0.0.1"] == "lo"
    for address, name in interfaces.addresses().items():
        assert interfaces.interface_of(address) == interfaces.interface_of(name) == name
    assert interfaces.address_of("lo") == "127.0.0.1"
    assert interfaces.interface_towards("127.0.0.1") == "lo"
    with pytest.raises(ConfigError, match=r"listen='192\.0\.2\.77' is neither.*lo \(127\.0\.0\.1\)"):
        interfaces.interface_of("192.0.2.77")


def meet_all(store: HashStore, ranks: Sequence[int], size: int, timeout: timedelta) -> list[str]:
    """Some workers, at the same time."""
    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(lambda rank: meet(store, rank, size, timeout), ranks))


def test_every_attempt_gets_a_name_of_its_own() -> None:
    store = HashStore()
    attempts = [set(meet_all(store, range(4), 4, PATIENT)) for _ in range(5)]
    assert all(len(names) == 1 for names in attempts)
    assert len(set.union(*attempts)) == 5


def test_who_does_not_come_is_named() -> None:
    with pytest.raises(PeerTimeoutError, match=r"workers 1, 3 did not answer .*worker 0 waited 0\.3 s") as raised:
        meet_all(HashStore(), (0, 2), 4, IMPATIENT)
    assert raised.value.ranks == (1, 3)


def test_who_came_to_an_earlier_attempt_only_is_named() -> None:
    store = HashStore()
    meet_all(store, range(3), 3, PATIENT)
    with pytest.raises(PeerTimeoutError) as raised:
        meet_all(store, (0, 2), 3, IMPATIENT)
    assert raised.value.ranks == (1,)


def test_two_processes_with_one_rank_are_told() -> None:
    store = HashStore()
    store.set("arrived/1", "0" * 16)
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(meet, store, 0, 2, timedelta(seconds=1)) for _ in range(2)]
        errors = [each.exception() for each in both]
    told = [error for error in errors if isinstance(error, AgreementError)]  # the one that came first
    assert len(told) == 1
    assert "another process has arrived as worker 0" in str(told[0])
    assert [type(error) for error in errors if error is not told[0]] == [PeerTimeoutError]


@pytest.mark.parametrize("written", [b"\xff\xfe", b"", b"somebody", b"0" * 15 + b"\n"])
def test_what_somebody_else_wrote_into_the_store_is_told(written: bytes) -> None:
    store = HashStore()
    store.set("arrived/1", written)  # type: ignore[arg-type]
    with pytest.raises(AgreementError, match="the store holds of worker 1 was not written by lioncub"):
        meet(store, 0, 2, IMPATIENT)


@pytest.mark.parametrize(
    ("backend", "change", "named"),
    [
        ("bogus", {}, "backend='bogus': this build of torch has no 'bogus'"),
        ("cpu:gloo,cuda:bogus", {}, "no 'bogus'"),
        ("gloo", {"GLOO_SOCKET_IFNAME": "bogus0"}, "GLOO_SOCKET_IFNAME=bogus0 .* no interface 'bogus0'.* it has .*lo"),
        ("gloo", {"MASTER_ADDR": "no-such-host.invalid"}, "MASTER_ADDR='no-such-host.invalid' cannot be reached"),
    ],
)
def test_settings_that_cannot_connect_blame_no_peer(
    backend: str, change: dict[str, str], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (TORCHRUN | change).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=named):
        lioncub.distributed.init(backend)


def test_a_name_that_is_loopback_on_its_own_machine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "is_loopback", lambda host: True)  # 127.0.1.1, as Debian writes it into /etc/hosts
    monkeypatch.setattr(environment, "interface_outwards", lambda: "eth7")
    monkeypatch.setattr(environment, "address_of", {"eth7": "10.0.0.5"}.__getitem__)
    first = place(RANK="0", MASTER_ADDR="my-machine", TORCHELASTIC_USE_AGENT_STORE="False")
    assert first.interface(None) == "eth7"
    assert first.store_address(None) == "10.0.0.5"
    assert place(MASTER_ADDR="localhost").interface(None) == interfaces.LOOPBACK
    assert place(MASTER_ADDR="127.0.0.1").store_address(None) == "127.0.0.1"
    assert place(MASTER_ADDR="my-machine", LOCAL_WORLD_SIZE="8").interface(None) == interfaces.LOOPBACK


def test_the_interface_that_others_see() -> None:
    assert interfaces.interface_outwards() in interfaces.addresses().values()
    assert interfaces.is_only_here("localhost.localdomain")
    assert not interfaces.is_only_here("my-machine")
