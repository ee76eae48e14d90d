"""Two levels: full precision where the network is fast, the codec where it is slow."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from torch import Tensor

from lioncub.codecs import Codec, Dense
from lioncub.collectives.base import Collective, Exchange, Outcome, Parcel, Traffic, Wire, roll_call
from lioncub.collectives.registry import collective_from
from lioncub.collectives.two_phase import TwoPhase
from lioncub.errors import ConfigError
from lioncub.kernels.layout import Layout
from lioncub.transport.comm import Comm
from lioncub.wire import checksums, consensus
from lioncub.wire.headers import Flags, Header


@dataclass(frozen=True)
class Hierarchical(Collective):
    """The workers of a node average their update vectors, nodes vote, and a node's workers share that exchange out.

    ``inner``: workers per node, consecutive ranks; None is torchrun's LOCAL_WORLD_SIZE.
    ``outer``: the collective between nodes.

    1. headers from everybody to everybody, so that all know who votes, and miss the same;
    2. inside each node, the average of u in float32, by :class:`TwoPhase`;
    3. every worker encodes its node's average, and exchanges its share of the blocks with the workers of the same
       local rank on the other nodes;
    4. inside each node, everybody gets every share's outcome.
    """

    inner: int | None = None
    outer: str | Collective = "auto"

    def __post_init__(self) -> None:
        if self.inner is not None and (not isinstance(self.inner, int) or self.inner < 1):
            raise ConfigError(f"Hierarchical(inner={self.inner!r}): inner is the number of workers per node, 1 or more")
        if self._outer.ordered or isinstance(self.outer, Hierarchical):
            raise ConfigError(
                f'Hierarchical(outer={self.outer}): between nodes use "two-phase" (point-to-point), "gather", "server" '
                'or "auto"'
            )

    @property
    def _outer(self) -> Collective:
        return collective_from(self.outer)

    def per_node(self, num_workers: int) -> int:
        per_node = self.inner if self.inner is not None else int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        if num_workers % per_node:
            raise ConfigError(
                f"Hierarchical(inner={per_node}): {num_workers} workers do not make whole nodes of {per_node}"
            )
        return per_node

    def num_voters(self, num_workers: int) -> int:
        return num_workers // self.per_node(num_workers)

    def _node(self, comm: Comm) -> Comm:
        per_node = self.per_node(comm.size)
        first = comm.index // per_node * per_node
        return comm.subset(range(first, first + per_node))

    def _counterparts(self, comm: Comm) -> Comm:
        per_node = self.per_node(comm.size)
        return comm.subset(range(comm.index % per_node, comm.size, per_node))

    def _share(self, layout: Layout, comm: Comm) -> Layout:
        """The share of the bucket that one worker exchanges with its counterparts, as a layout of their group."""
        counterparts = self._counterparts(comm)
        return Layout((layout.padded_numel // self.per_node(comm.size),), counterparts.size)

    def resolve(self, codec: Codec, layout: Layout, comm: Comm) -> Collective:
        counterparts = self._counterparts(comm)
        outer = self._outer.resolve(codec, self._share(layout, comm), counterparts)
        return replace(self, inner=self.per_node(comm.size), outer=outer)

    def first_codec(self, codec: Codec) -> Codec:
        return Dense()

    def exchange(self, comm: Comm, parcel: Parcel, payload: Tensor) -> Exchange:
        headers = yield from roll_call(comm, parcel)
        node, counterparts = self._node(comm), self._counterparts(comm)
        dense = Dense()
        local = yield from TwoPhase().exchange(node, replace(parcel, codec=dense, tag=parcel.tag + 1), payload)
        mean = dense.mean(local.combined, local.ballot).to(parcel.dtype)

        payload = parcel.codec.encode(mean, parcel.layout, parcel.header.step)
        share_blocks = len(payload) // node.size
        first = node.index * share_blocks
        spokesman = replace(parcel, header=_node_header(local.headers), tag=parcel.tag + 3)
        share = yield from self._outer.exchange_payload(
            counterparts, spokesman, payload[first : first + share_blocks], first_block=first
        )

        row = checksums.with_seal(share.combined.reshape(1, -1), device=node.device)[0]
        gathered, pending = node.all_gather(row, parcel.tag + 6)
        yield pending
        checksums.check(gathered, node.global_ranks)
        ballot = consensus.ballot(share.headers, parcel.layout, parcel.header.step)
        combined = checksums.opened(gathered).view(len(payload), -1)
        return Outcome(parcel.codec, combined, ballot, payload.unsqueeze(0), share.voter, headers)

    def exchange_payload(self, comm: Comm, parcel: Parcel, payload: Tensor, first_block: int = 0) -> Exchange:
        raise AssertionError("nodes average before they encode: use exchange()")

    def traffic(self, wire: Wire, comm: Comm) -> Traffic:
        node, counterparts = self._node(comm), self._counterparts(comm)
        floats = Dense().up_block_bytes
        share = replace(wire, blocks=wire.blocks // node.size)
        outcome = share.blocks * wire.down_block_bytes + checksums.SEAL
        return (
            Traffic.with_each(comm.size - 1, wire.header_bytes, wire.header_bytes)
            + TwoPhase().traffic(replace(wire, up_block_bytes=floats, down_block_bytes=floats), node)
            + self._outer.traffic(share, counterparts)
            + Traffic.with_each(node.size - 1, outcome, outcome)
        )


def _node_header(headers: tuple[Header, ...]) -> Header:
    """What a node says to the others: it has what any of its workers has, and abstains when all of them do."""
    flags = headers[0].flags if all(header.abstains for header in headers) else Flags.NONE
    present = tuple(any(header.votes_on(tensor) for header in headers) for tensor in range(len(headers[0].present)))
    return replace(headers[0], flags=flags, present=present)
