"""Damaged and forged messages: a typed error each time, no hang, no abort."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from lioncub import DistributedLion, MomentumSync
from lioncub.errors import LionCubError, WireError
from lioncub.transport.comm import SLACK, Comm
from lioncub.wire import checksums
from lioncub.wire.consensus import check
from lioncub.wire.headers import Flags, Header
from tests.support.cluster import Cluster
from tests.support.seeds import chance
from tests.support.small_model import loss_of, make_model, weights
from tests.support.tiers import counts

HEADER = Header(rank=0, bucket=1, step=2, plan=3, hyper=4, fingerprint=5, present=(True,) * 70)


def damaged(data: bytes, numbers: random.Random) -> bytes:
    """Other bytes: random ones, a flipped bit, a piece missing or too much."""
    kind = numbers.randrange(4)
    if kind == 0:
        return numbers.randbytes(numbers.randrange(0, 2 * len(data)))
    if kind == 1:
        bit = numbers.randrange(8 * len(data))
        return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]
    if kind == 2:
        return data[: numbers.randrange(len(data))]
    return data + numbers.randbytes(numbers.randrange(1, 64))


def forged(numbers: random.Random) -> Header:
    """A header whose checksum is right and whose content is not."""
    field = numbers.choice(["version", "plan", "bucket", "step", "hyper", "fingerprint", "flags"])
    if field == "flags":
        return replace(HEADER, rank=1, flags=Flags(numbers.choice([2, 4, 8, 16])))
    wrong: Any = numbers.choice([value for value in range(16) if value != getattr(HEADER, field)])
    return replace(HEADER, rank=1, **{field: wrong})


@counts("cases", fast=500, full=5_000)
def test_headers(cases: int) -> None:
    numbers, sealed = chance("headers"), HEADER.pack().numpy().tobytes()
    for _ in range(cases // 2):
        with pytest.raises(WireError):
            Header.parse(damaged(sealed, numbers))
        sent = forged(numbers)
        with pytest.raises(LionCubError, match="worker"):
            check([HEADER, Header.unpack(sent.pack()), HEADER], quorum=1, what="a bucket")


@counts("cases", fast=500, full=5_000)
def test_seals(cases: int) -> None:
    numbers = chance("seals")
    for _ in range(cases):
        count, width = numbers.randint(1, 4), 8 * numbers.randint(1, 12)
        payload = torch.frombuffer(bytearray(numbers.randbytes(count * width)), dtype=torch.uint8)
        rows = checksums.with_seal(payload.view(count, width), device=torch.device("cpu"))
        checksums.check(rows, range(count))
        row, bit = numbers.randrange(count), numbers.randrange(8 * (width + checksums.SEAL))
        rows[row, bit // 8] ^= 1 << bit % 8
        with pytest.raises(WireError, match=f"from worker {row}:"):
            checksums.check(rows, range(count))


def test_a_notice_names_who_got_damaged_bytes_and_from_whom() -> None:
    """It is enough that one of several messages carries one: all workers raise together."""
    cpu, contents = torch.device("cpu"), torch.ones(1, 16, dtype=torch.uint8)
    rows = torch.cat([checksums.with_seal(contents, device=cpu, notice=notice) for notice in (0, 3)])
    with pytest.raises(WireError, match="worker 5 got damaged bytes from worker 2:"):
        checksums.check(rows, [4, 5])


KINDS = ("flipped", "random", "short", "long", "forged")


def spoiled(message: Tensor, kind: str, numbers: random.Random) -> Tensor:
    """What leaves instead of a message."""
    if kind == "flipped":
        other = message.clone()
        other[numbers.randrange(other.numel())] ^= 1 << numbers.randrange(8)
        return other
    size = message.numel()
    if kind == "short":  # by a seal at least: a last byte that is missing can be in the buffer already, by chance
        return message[: numbers.randrange(1, size - checksums.SEAL)].clone()
    count = numbers.randrange(1, SLACK) if kind == "long" else size
    noise = torch.frombuffer(bytearray(numbers.randbytes(count)), dtype=torch.uint8)
    place = numbers.randrange(size - checksums.SEAL)  # beyond it, the bytes that count could by chance be right
    return torch.cat([message[:place], noise, message[place:]]) if kind == "long" else noise


@contextmanager
def tampering(kind: str, phase: int, seed: int) -> Iterator[None]:
    """One of the messages of the ``phase``-th pattern that leaves is spoiled; or all headers are forged."""
    swap, pack, seen, numbers = Comm.swap, Header.pack, 0, random.Random(seed)

    def tampered(self: Comm, outgoing: dict[int, Tensor], incoming: dict[int, Tensor], tag: int) -> Any:
        nonlocal seen
        seen += 1
        if kind != "forged" and seen == phase:
            peer = numbers.choice(sorted(outgoing))
            outgoing = {**outgoing, peer: spoiled(outgoing[peer], kind, numbers)}
        return swap(self, outgoing, incoming, tag)

    def forged_pack(self: Header) -> Tensor:
        field = numbers.choice(["version", "plan", "bucket", "step", "hyper"])
        return pack(replace(self, **{field: getattr(self, field) ^ 1 << numbers.randrange(8)}))

    Comm.swap = tampered  # type: ignore[method-assign,assignment]
    if kind == "forged":
        Header.pack = forged_pack  # type: ignore[method-assign]
    try:
        yield
    finally:
        Comm.swap, Header.pack = swap, pack  # type: ignore[method-assign]


def _votes_on_a_bad_wire(rank: int, group: dist.ProcessGroup, seed: int, cases: int) -> list[str]:
    model, numbers = make_model(), random.Random(seed)
    optimizer = DistributedLion(
        model.named_parameters(), 1e-2, process_group=group, collective="two-phase", overlap=False
    )
    said, before = [], weights(model)
    for case in range(cases):
        optimizer.zero_grad()
        loss_of(model, rank, case).backward()
        victim, kind = numbers.randrange(group.size()), numbers.choice(KINDS)
        with tampering(kind, 1, seed + case) if rank == victim else nullcontext():
            try:
                optimizer.step()
            except LionCubError as problem:
                said.append(f"{kind}: {type(problem).__name__}: {problem}")
    assert torch.equal(weights(model), before), "nothing changes in a step that fails"
    optimizer.zero_grad()
    loss_of(model, rank, 0).backward()
    optimizer.step()  # and the next one works
    return said


@counts("cases", fast=200, full=5_000)
def test_bad_messages_on_the_wire_stop_the_step_on_all_workers(cluster: Cluster, cases: int) -> None:
    seed = chance("wire").randrange(2**31)
    for said in cluster.run(3, _votes_on_a_bad_wire, seed, cases):
        assert len(said) == cases
        assert {text.split(":")[0] for text in said} == set(KINDS)
        damaged = [text for text in said if not text.startswith("forged")]
        assert all("WireError" in text and "got damaged bytes from worker" in text for text in damaged)


def _answer_on_a_bad_wire(rank: int, group: dist.ProcessGroup, collective: str, phase: int) -> str:
    model = make_model()
    optimizer = DistributedLion(model.named_parameters(), process_group=group, collective=collective)
    loss_of(model, rank, 0).backward()
    with tampering("flipped", phase, 7) if rank == 0 else nullcontext():
        try:
            optimizer.step()
        except WireError as problem:
            return str(problem)
    return ""


@pytest.mark.parametrize(("collective", "phase"), [("two-phase", 2), ("gather", 1), ("server", 3)])
def test_an_answer_damaged_on_the_wire_is_found_by_who_got_it(cluster: Cluster, collective: str, phase: int) -> None:
    said = cluster.run(3, _answer_on_a_bad_wire, collective, phase)
    found = [text for text in said if text]
    assert len(found) == 1
    assert "this worker got damaged bytes from worker 0" in found[0]


def _samples_on_a_bad_wire(rank: int, group: dist.ProcessGroup, phase: int) -> str:
    """Every pattern of messages of a step in which momenta are measured and averaged."""
    model = make_model()
    sync = MomentumSync(every=1, budget=64.0)
    optimizer = DistributedLion(
        model.named_parameters(), process_group=group, collective="gather", momentum_sync=sync, overlap=False
    )
    for step in range(3):  # after the second, tensors are chosen
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        with tampering("flipped", phase, 7) if (rank, step) == (0, 2) else nullcontext():
            try:
                optimizer.step()
            except WireError as problem:
                return str(problem)
    return ""


@pytest.mark.parametrize("phase", [1, 2, 3, 4])
def test_no_message_of_momenta_goes_unchecked(cluster: Cluster, phase: int) -> None:
    assert any("damaged bytes from worker 0" in said for said in cluster.run(3, _samples_on_a_bad_wire, phase))
