"""The bytes and messages that are sent equal traffic(), and buckets are sent during backward."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from lioncub import Dense, DistributedLion, Hierarchical, Levels, Mean, MomentumSync, TwoPhase, Vote
from lioncub.transport.comm import SLACK, Comm
from lioncub.transport.sockets import Mesh
from tests.support.cluster import Cluster
from tests.toy_collective import SharedCount


class Counter:
    """Counts what is handed to sockets and to torch.distributed, by standing in front of them."""

    def __init__(self, patch: pytest.MonkeyPatch, num_workers: int) -> None:
        self.sent = self.received = self.messages = 0
        send, receive = dist.ProcessGroup.send, dist.ProcessGroup.recv
        all_to_all, gather = dist.all_to_all_single, dist.all_gather_single
        post = Mesh.post
        others = num_workers - 1

        def count_post(mesh: Mesh, outgoing: dict[int, Tensor], incoming: dict[int, Tensor], tag: int) -> Any:
            self.sent += sum(message.nbytes for message in outgoing.values())
            self.messages += len(outgoing)
            self.received += sum(message.nbytes - SLACK for message in incoming.values())
            return post(mesh, outgoing, incoming, tag)

        def count_send(group: dist.ProcessGroup, tensors: list[Tensor], *args: Any) -> Any:
            self.sent += sum(tensor.nbytes for tensor in tensors)
            self.messages += 1
            return send(group, tensors, *args)

        def count_recv(group: dist.ProcessGroup, tensors: list[Tensor], *args: Any) -> Any:
            self.received += sum(tensor.nbytes - SLACK for tensor in tensors)  # room for messages that are too long
            return receive(group, tensors, *args)

        def all_to_all_single(out: Tensor, inp: Tensor, *args: Any, **kwargs: Any) -> Any:
            self.sent += inp.nbytes // num_workers * others
            self.received += out.nbytes // num_workers * others
            self.messages += others
            return all_to_all(out, inp, *args, **kwargs)

        def all_gather_single(out: Tensor, inp: Tensor, *args: Any, **kwargs: Any) -> Any:
            self.sent += inp.nbytes * others
            self.received += out.nbytes // num_workers * others
            self.messages += others
            return gather(out, inp, *args, **kwargs)

        patch.setattr(Mesh, "post", count_post)
        patch.setattr(dist.ProcessGroup, "send", count_send)
        patch.setattr(dist.ProcessGroup, "recv", count_recv)
        for stand_in in (all_to_all_single, all_gather_single):
            patch.setattr(dist, stand_in.__name__, stand_in)


def _count(rank: int, group: dist.ProcessGroup, settings: dict[str, Any]) -> None:
    params = [nn.Parameter(torch.zeros(n)) for n in (3000, 17, 1, 513)]
    optimizer = DistributedLion(params, process_group=group, bucket_numel=600, **settings)
    for _ in range(5):
        with pytest.MonkeyPatch.context() as patch:
            counter = Counter(patch, dist.get_world_size(group))
            expected = optimizer.traffic()
            optimizer.zero_grad()
            torch.stack([(p * (rank + 0.5)).sum() for p in params]).sum().backward()
            optimizer.step()
        assert (counter.sent, counter.received, counter.messages) == (
            expected.sent_bytes,
            expected.received_bytes,
            expected.num_messages,
        )
        assert optimizer.stats.bytes_sent == counter.sent
        assert optimizer.stats.bytes_received == counter.received


@pytest.mark.parametrize("num_workers", [1, 2, 3, 4, 8])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"collective": "two-phase"},
        {"collective": "two-phase", "carrier": "backend"},
        {"collective": TwoPhase("collectives"), "codec": Mean()},
        {"collective": "gather", "codec": Levels(3)},
        {"collective": "server", "codec": Levels(5, grid="midtread")},
        {"collective": "server", "codec": Dense(torch.bfloat16)},
        {"collective": SharedCount(), "codec": Levels(4, grid="float")},
        {"momentum_sync": MomentumSync(every=2)},
        {"momentum_sync": MomentumSync(every=2, budget=4.0)},
        {"momentum_sync": MomentumSync(every=3, spread=False, dtype=torch.float32)},
    ],
    ids=str,
)
def test_statistics_and_traffic_are_what_was_sent(cluster: Cluster, settings: dict[str, Any], num_workers: int) -> None:
    cluster.run(num_workers, _count, settings)


@pytest.mark.parametrize(("num_workers", "per_node"), [(4, 2), (8, 4), (8, 2), (3, 3)])
@pytest.mark.parametrize("outer", ["auto", "two-phase", "gather", "server"])
def test_hierarchical_traffic_is_what_was_sent(cluster: Cluster, num_workers: int, per_node: int, outer: str) -> None:
    settings = {"collective": Hierarchical(inner=per_node, outer=outer), "codec": Levels(4)}
    cluster.run(num_workers, _count, settings)


def _overlap(rank: int, group: dist.ProcessGroup, overlap: bool) -> list[int]:
    """How many messages have left when each layer's gradient lands."""
    layers = [nn.Linear(20, 20) for _ in range(4)]
    for layer in layers:
        nn.init.ones_(layer.weight)
        nn.init.ones_(layer.bias)
    model = nn.Sequential(*layers)
    named = list(model.named_parameters())
    optimizer = DistributedLion(named, process_group=group, overlap=overlap, bucket_numel=400, collective="gather")
    seen: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        counter = Counter(patch, dist.get_world_size(group))
        for layer in layers:
            layer.register_full_backward_pre_hook(lambda *_: seen.append(counter.messages))
        model(torch.ones(1, 20)).sum().backward()
        seen.append(counter.messages)
        optimizer.step()
        seen.append(counter.messages)
    return seen


def test_buckets_leave_while_backward_goes_on(cluster: Cluster) -> None:
    for early, late in zip(cluster.run(3, _overlap, True), cluster.run(3, _overlap, False), strict=True):
        assert early == [0, 2, 4, 6, 6, 8], "two messages a layer, the last one in step()"
        assert late == [0, 0, 0, 0, 0, 8]


def _batched(rank: int, group: dist.ProcessGroup) -> list[int]:
    """What accelerators' backends need: all sends and receives of a pattern launched together."""
    comm = Comm.of(group, torch.device("cpu"))
    mine = torch.full((4,), rank, dtype=torch.uint8)
    inbox = [torch.empty(4, dtype=torch.uint8) for _ in range(comm.size)]
    others = [peer for peer in range(comm.size) if peer != rank]
    posts: list[Any] = [(dist.irecv, peer, inbox[peer]) for peer in others]
    posts += [(dist.isend, peer, mine) for peer in others]
    comm._post_batch(posts, 77).wait()
    inbox[rank] = mine
    return [int(message[0]) for message in inbox]


def test_batched_point_to_point(cluster: Cluster) -> None:
    assert cluster.run(3, _batched) == [[0, 1, 2]] * 3


def _traffic(rank: int, group: dist.ProcessGroup, codec: Any, collective: Any) -> float:
    params = [nn.Parameter(torch.zeros(n)) for n in (600_000, 999, 399_001, 64)]
    optimizer = DistributedLion(params, process_group=group, codec=codec, collective=collective)
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer.step()
    return optimizer.stats.bits_per_parameter


SIZES = (2, 4, 8)


@pytest.mark.parametrize("num_workers", SIZES)
@pytest.mark.parametrize(
    ("codec", "up", "down"),
    [
        (Vote(), 1, [1, 1, 1]),
        (Mean(), 1, [math.ceil(math.log2(n + 1)) for n in SIZES]),
        (Levels(4), 4, [1, 1, 1]),
        (Levels(5, grid="log"), 5, [1, 1, 1]),
        (Levels(3, grid="midtread"), 3, [2, 2, 2]),
    ],
    ids=repr,
)
def test_headers_and_padding_cost_less_than_two_percent(
    cluster: Cluster, codec: Any, up: int, down: list[int], num_workers: int
) -> None:
    bits = (num_workers - 1) / num_workers * (up + down[SIZES.index(num_workers)])
    for sent in cluster.run(num_workers, _traffic, codec, "two-phase"):
        assert bits <= sent <= 1.02 * bits


def test_two_phase_transports_send_the_same_bytes(cluster: Cluster) -> None:
    a = cluster.run(4, _traffic, Vote(), TwoPhase("point-to-point"))
    assert a == cluster.run(4, _traffic, Vote(), TwoPhase("collectives"))
