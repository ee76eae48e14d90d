"""The transports between CPUs, sockets and the backend: the same bits by both."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from lioncub import DistributedLion, Hierarchical, Levels, MomentumSync
from lioncub.errors import WireError
from lioncub.transport import sockets
from lioncub.transport.comm import Comm
from tests.support.cluster import Cluster, Failure
from tests.support.small_model import loss_of, make_model, weights

CASES: dict[str, dict[str, Any]] = {
    "two-phase": {"collective": "two-phase", "codec": Levels(4, grid="float")},
    "gather": {"collective": "gather"},
    "server": {"collective": "server"},
    "hierarchical": {"collective": Hierarchical(inner=2)},
    "momentum": {"momentum_sync": MomentumSync(every=2)},
}


def _train(
    rank: int, group: dist.ProcessGroup, settings: dict[str, Any], not_built_on: int = -1
) -> tuple[bool, Tensor]:
    model = make_model()
    with pytest.MonkeyPatch.context() as patch:
        if rank == not_built_on:
            patch.setattr(sockets, "_problem", "the C++ part was not built")
        optimizer = DistributedLion(model.named_parameters(), 1e-2, process_group=group, bucket_numel=500, **settings)
    for step in range(5):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
    return optimizer._comm.mesh is not None, weights(model)


@pytest.mark.parametrize("case", CASES)
def test_both_carriers_bring_the_same_bits(cluster: Cluster, case: str) -> None:
    by_sockets = cluster.run(4, _train, CASES[case])
    by_backend = cluster.run(4, _train, {**CASES[case], "carrier": "backend"})
    assert [own for own, _ in by_sockets] == [True] * 4, "the default"
    assert [own for own, _ in by_backend] == [False] * 4
    assert all(torch.equal(found, by_sockets[0][1]) for _, found in [*by_sockets, *by_backend])


def test_where_one_worker_has_no_compiler_all_use_the_backend(cluster: Cluster) -> None:
    mixed = cluster.run(3, _train, {"collective": "two-phase"}, 1)
    assert [own for own, _ in mixed] == [False] * 3
    alike = cluster.run(3, _train, {"collective": "two-phase"})
    assert all(torch.equal(found, alike[0][1]) for _, found in mixed)


def test_sockets_that_are_asked_for_and_cannot_be_had_are_an_error(cluster: Cluster) -> None:
    said = cluster.attempt(3, _train, {"carrier": "sockets"}, 1)
    assert [failure.kind for failure in said] == ["ConfigError"] * 3
    assert "here: the C++ part was not built" in said[1].text
    assert all('Use carrier="auto"' in failure.text for failure in said)


def _train_each(rank: int, group: dist.ProcessGroup, carriers: list[str], not_built_on: int) -> Any:
    return _train(rank, group, {"carrier": carriers[rank]}, not_built_on)


@pytest.mark.parametrize("carriers", [["sockets", "backend", "backend"], ["auto", "sockets", "auto"]])
@pytest.mark.parametrize("not_built_on", [-1, 2])
def test_carriers_that_differ_are_told_to_all(cluster: Cluster, carriers: list[str], not_built_on: int) -> None:
    for failure in cluster.attempt(3, _train_each, carriers, not_built_on):
        assert failure.kind == "AgreementError"
        assert "carrier" in failure.text


def test_a_carrier_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match='choose "auto", "sockets" or "backend"'):
        DistributedLion(make_model().parameters(), carrier="pigeon")  # type: ignore[arg-type]


def _shout(rank: int, group: dist.ProcessGroup, extra: int) -> str:
    model, swap = make_model(), Comm.swap
    optimizer = DistributedLion(
        model.named_parameters(), process_group=group, collective="two-phase", carrier="sockets", overlap=False
    )

    def tampered(self: Comm, outgoing: dict[int, Tensor], incoming: dict[int, Tensor], tag: int) -> Any:
        noise = torch.zeros(extra, dtype=torch.uint8)
        return swap(self, {peer: torch.cat([noise, row]) for peer, row in outgoing.items()}, incoming, tag)

    before = weights(model)
    loss_of(model, rank, 0).backward()
    with pytest.MonkeyPatch.context() as patch:
        if rank == 0:
            patch.setattr(Comm, "swap", tampered)
        try:
            optimizer.step()
        except WireError as problem:
            assert torch.equal(weights(model), before)
            return str(problem)
    return ""


@pytest.mark.parametrize("extra", [1, 5_000, 3_000_000])
def test_a_message_however_much_too_long_ends_no_process(cluster: Cluster, extra: int) -> None:
    for said in cluster.run(3, _shout, extra):
        assert "got damaged bytes from worker 0" in said


def _fork_and_die(rank: int, group: dist.ProcessGroup) -> Any:
    """As data loaders do; the child outlives its parent."""
    model = make_model()
    optimizer = DistributedLion(model.named_parameters(), process_group=group, collective="two-phase")
    if rank == 1:
        if os.fork() == 0:
            time.sleep(15)
            os._exit(0)
        os._exit(1)
    started = time.monotonic()
    try:
        loss_of(model, rank, 0).backward()
        optimizer.step()
    except RuntimeError as problem:
        return type(problem).__name__, time.monotonic() - started
    return None


def test_a_worker_that_dies_is_missed_at_once_although_a_process_it_forked_lives_on() -> None:
    cluster = Cluster(3, sizes=(3,), timeout_seconds=30)
    try:
        for rank in range(3):
            cluster.pipes[rank].send((_fork_and_die, 3, ()))
        for rank in (0, 2):
            assert cluster.pipes[rank].poll(25)
            result = cluster.pipes[rank].recv()
            assert not isinstance(result, Failure), result.trace
            kind, seconds = result
            assert kind == "PeerLostError"
            assert seconds < 14
    finally:
        cluster.close()
