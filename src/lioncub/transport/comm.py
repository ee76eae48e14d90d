"""Communication between the workers of a process group: by sockets (sockets.py), or by the group's backend, which has
point-to-point messages and collectives.

Every operation is asynchronous: a call returns the tensor that will be received and a :class:`Pending`. The tensor must
not be read before ``Pending.wait()`` has returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor

from lioncub.errors import ConfigError, PeerError, PeerLostError, PeerTimeoutError
from lioncub.kernels.buffers import pool
from lioncub.transport.connecting import connect
from lioncub.transport.sockets import Mesh, Post, why_not

TAGS = 1 << 20
"""The number of tags of a channel."""

TAG_CONNECT = 6
"""A tag of channel 0. The other tags of that channel belong to wire/handshake.py."""

SLACK = 4096
"""The room behind a receive buffer, in bytes. gloo aborts a process that receives a message longer than its buffer."""
END = 8
"""The bytes at the end of a receive buffer that are cleared before use: a message that is too short leaves them 0."""

_channels: WeakKeyDictionary[dist.ProcessGroup, Iterator[int]] = WeakKeyDictionary()

TransportName = Literal["auto", "point-to-point", "collectives"]
Carrier = Literal["auto", "sockets", "backend"]
"""The transport between CPUs: sockets, the process group's backend, or sockets where all workers can use them."""


class Pending:
    """Operations in flight, each with the ranks of the workers on which it depends."""

    def __init__(self, works: Sequence[tuple[tuple[int, ...], Any]] = ()) -> None:
        self._works = works

    def wait(self) -> None:
        """Block until all operations are complete; raise a :class:`PeerError` that names the worker that failed.

        There is no time-out here: in gloo a wait that times out closes every connection of the group.
        """
        for ranks, work in self._works:
            try:
                work.wait()
            except RuntimeError as problem:
                raise peer_error(ranks, problem) from problem


class Posted(Pending):
    """Messages by sockets. ``global_rank`` gives the rank by which errors name a member of the group."""

    def __init__(self, post: Post, global_rank: Callable[[int], int]) -> None:
        super().__init__()
        self._post, self._global_rank = post, global_rank

    def wait(self) -> None:
        if lost := self._post.wait():
            member, problem = lost
            raise peer_error([self._global_rank(member)], RuntimeError(problem))


@dataclass(frozen=True)
class Refused:
    """An operation that could not be posted. The others of its pattern are: live peers wait for them."""

    problem: RuntimeError

    def wait(self) -> None:
        raise self.problem


def is_timeout(problem: RuntimeError) -> bool:
    return "timed out" in str(problem).lower() or "timeout" in str(problem).lower()


def peer_error(ranks: Sequence[int], cause: RuntimeError) -> PeerError:
    """The typed error for a failure of the backend that concerns ``ranks``."""
    kind = PeerTimeoutError if is_timeout(cause) else PeerLostError
    return kind(ranks, str(cause).strip().splitlines()[0])


@dataclass(frozen=True)
class Comm:
    """Some workers of a process group, in rank order, seen from one of them. ``group`` is None in a world of one."""

    group: dist.ProcessGroup | None
    members: tuple[int, ...]
    """Ranks inside ``group``."""
    index: int
    """This worker's place in ``members``."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    """The device of messages: the CPU for gloo and MPI, the accelerator for NCCL and similar backends."""
    native: bool = True
    """Whether ``members`` is the whole group, which the backend's collectives require."""
    channel: int = 0
    """Messages of one channel never meet those of another, whatever their tags."""
    mesh: Mesh | None = field(default=None, repr=False)
    """Sockets to all workers of ``group``; None: the backend carries all messages."""

    @classmethod
    def of(cls, process_group: Any, device: torch.device) -> Comm:
        """From a ProcessGroup, a one-dimensional DeviceMesh, or None: the default group, or a world of one."""
        if getattr(process_group, "ndim", 1) != 1:
            raise ConfigError(f'process_group={process_group!r}: choose one dimension of the mesh, as in mesh["data"]')
        group = process_group.get_group() if hasattr(process_group, "get_group") else process_group
        if group is None:
            if not (dist.is_available() and dist.is_initialized()):
                return cls(None, (0,), 0)
            group = dist.group.WORLD
        if not isinstance(group, dist.ProcessGroup):
            raise ConfigError(
                f"process_group={process_group!r}: this worker is not in the group, or it is not a ProcessGroup "
                "or a DeviceMesh dimension"
            )
        on_cpu = any(name in str(dist.get_backend(group)) for name in ("gloo", "mpi"))
        members = tuple(range(dist.get_world_size(group)))
        return cls(group, members, dist.get_rank(group), torch.device("cpu") if on_cpu else device)

    @cached_property
    def size(self) -> int:
        return len(self.members)

    @cached_property
    def rank(self) -> int:
        """The global rank, by which errors name this worker."""
        return self.global_rank(self.index)

    @cached_property
    def global_ranks(self) -> tuple[int, ...]:
        """Of the members, in their order."""
        if self.group is None:
            return (0,) * self.size
        return tuple(dist.get_global_rank(self.group, member) for member in self.members)

    def global_rank(self, index: int) -> int:
        return self.global_ranks[index]

    def _member_rank(self, member: int) -> int:
        return self.global_rank(self.members.index(member))

    def on_new_channel(self) -> Comm:
        """The same workers on a new channel, for one more user of the group. Workers take channels in one order."""
        if self.group is None:
            return self
        return replace(self, channel=1 + next(_channels.setdefault(self.group, count())) % (2**31 // TAGS - 1))

    def connected(self, carrier: Carrier = "auto") -> Comm:
        """The same workers, with sockets where all of them can use sockets. A collective call."""
        if self.size == 1 or self.device.type != "cpu":
            return self

        def gather(data: bytes) -> list[bytes]:
            return self.gather_rows(data, TAG_CONNECT)

        return replace(self, mesh=connect(gather, self.index, self.timeout_seconds, willing=carrier != "backend"))

    def check_carrier(self, carrier: Carrier) -> None:
        """Raise where ``carrier`` demands sockets and there are none: on all workers that have the same ``carrier``."""
        if carrier == "sockets" and self.size > 1 and self.device.type == "cpu" and self.mesh is None:
            here = f"; here: {problem}" if (problem := why_not()) else ""
            raise ConfigError(f'carrier="sockets": some worker cannot have them{here}. Use carrier="auto"')

    @property
    def timeout_seconds(self) -> float:
        """The process group's time-out."""
        try:
            options = self.group._get_backend(self.device).options  # type: ignore[union-attr]
            return float(options._timeout.total_seconds())
        except (RuntimeError, AttributeError):  # a backend without that option
            return dist.distributed_c10d.default_pg_timeout.total_seconds()

    def abandon(self) -> None:
        """Close this worker's sockets, so that peers that wait for it fail now and not at their time-out."""
        if self.mesh is not None:
            self.mesh.close()

    def subset(self, indices: Sequence[int]) -> Comm:
        """Some of these workers, this one among them. Point-to-point needs no new process group."""
        members = tuple(self.members[i] for i in indices)
        return replace(self, members=members, index=members.index(self.members[self.index]), native=False)

    def prefers_point_to_point(self) -> bool:
        """gloo reaches the speed of the wire point to point; the backends of accelerators reach it by collectives."""
        return self.device.type == "cpu" or not self.native

    # ---- point-to-point: every receive is posted before any send, so that no bulk send waits for the other's -------

    def swap(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor], tag: int) -> Pending:
        """Send and receive byte tensors, by index of the peer."""
        tag += TAGS * self.channel
        receives = [(peer, message) for peer, message in incoming.items() if message.numel()]
        sends = [(peer, message) for peer, message in outgoing.items() if message.numel()]
        if self.device.type != "cpu":
            return self._post_batch(
                [(dist.irecv, *post) for post in receives] + [(dist.isend, *post) for post in sends], tag
            )
        if self.mesh is not None:
            # Each worker begins with its successor: a first peer common to all would leave the other links idle.
            sends.sort(key=lambda send: (send[0] - self.index) % self.size)
            out, into = ({self.members[peer]: message for peer, message in some} for some in (sends, receives))
            return Posted(self.mesh.post(out, into, tag), self._member_rank)
        # The calls inside dist.irecv and dist.isend without their checks, which cost time in dozens of messages a step.
        assert self.group is not None
        works = [self._post(self.group.recv, peer, message, tag) for peer, message in receives]
        return Pending(works + [self._post(self.group.send, peer, message, tag) for peer, message in sends])

    def _post(self, operation: Any, peer: int, message: Tensor, tag: int) -> tuple[tuple[int, ...], Any]:
        ranks = (self.global_rank(peer),)
        try:
            return ranks, operation([message], self.members[peer], tag)
        except RuntimeError as problem:  # a peer known to be gone is refused when posting already
            return ranks, Refused(problem)

    def _post_batch(self, posts: Sequence[tuple[Any, int, Tensor]], tag: int) -> Pending:
        """NCCL needs all sends and receives of a pattern launched together."""
        batch = [
            dist.P2POp(operation, message, group=self.group, tag=tag, group_peer=self.members[peer])
            for operation, peer, message in posts
        ]
        ranks = tuple(sorted({self.global_rank(peer) for _, peer, _ in posts}))
        return Pending([(ranks, work) for work in dist.batch_isend_irecv(batch)] if batch else [])

    # ---- the two patterns of the exchanges, over either transport ---------------------------------------------------

    def all_to_all(self, rows: Tensor, tag: int, *, collectives: bool = False) -> tuple[Tensor, Pending]:
        """Row j of ``rows [size, bytes]`` goes to worker j; returns ``[size, bytes]``, row j from worker j."""
        if collectives and self.size > 1:
            inbox = torch.empty_like(rows)
            return inbox, self._collective(lambda: dist.all_to_all_single(inbox, rows, group=self.group, async_op=True))
        room = self.room(rows.shape[1])
        inbox = room[:, : rows.shape[1]]
        inbox[self.index] = rows[self.index]
        return inbox, self.swap(self._peers(rows), self._peers(room), tag)

    def all_gather(self, row: Tensor, tag: int, *, collectives: bool = False) -> tuple[Tensor, Pending]:
        """``row [bytes]`` goes to everybody; returns ``[size, bytes]``."""
        if collectives and self.size > 1:
            inbox = row.new_empty(self.size, row.numel())
            gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)  # renamed in torch 2.13
            return inbox, self._collective(lambda: gather(inbox.view(-1), row, group=self.group, async_op=True))
        room = self.room(row.numel())
        inbox = room[:, : row.numel()]
        inbox[self.index] = row
        return inbox, self.swap(dict.fromkeys(self._peers(room), row), self._peers(room), tag)

    def gather_rows(self, data: bytes, tag: int) -> list[bytes]:
        """``data`` of every worker, all of one length, in rank order. A collective call.

        It uses the backend and channel 0, which need no agreement: workers that make their optimizers in different
        orders still exchange these messages and find the difference.
        """
        comm = replace(self, channel=0, mesh=None)
        row = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(comm.device)
        inbox, pending = comm.all_gather(row, tag)
        pending.wait()
        return [answer.cpu().numpy().tobytes() for answer in inbox]

    def room(self, num_bytes: int) -> Tensor:
        """A receive buffer for a message of ``num_bytes`` from each worker; it shows longer and shorter ones."""
        if self.device.type != "cpu" or not num_bytes:
            return torch.empty(self.size, num_bytes, dtype=torch.uint8, device=self.device)
        room = pool.empty(self.size, num_bytes + SLACK)
        room[:, -SLACK - END :] = 0  # an earlier message must not complete one that is too short
        return room

    def all_reduce(self, values: Tensor) -> Pending:
        """Add ``values`` up over the workers, in place, by the backend's own allreduce."""
        return self._collective(lambda: dist.all_reduce(values, group=self.group, async_op=True))

    def _peers(self, rows: Tensor) -> dict[int, Tensor]:
        return {peer: row for peer, row in enumerate(rows) if peer != self.index}

    def broadcast(self, values: Tensor) -> Pending:
        """Overwrite ``values`` with the first worker's."""
        return self._collective(lambda: dist.broadcast(values, group=self.group, group_src=0, async_op=True))

    def _collective(self, launch: Callable[[], Any]) -> Pending:
        others = tuple(self.global_rank(peer) for peer in range(self.size) if peer != self.index)
        if not others:
            return Pending([])
        try:
            return Pending([(others, launch())])
        except RuntimeError as problem:
            raise peer_error(others, problem) from problem
