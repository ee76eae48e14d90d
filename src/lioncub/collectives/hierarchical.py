"""Two levels: full precision where the network is fast, the codec where it is slow."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lioncub.codecs import Codec, Dense
from lioncub.collectives.base import Collective, Outcome, Traffic, Wire
from lioncub.collectives.registry import collective_from
from lioncub.collectives.two_phase import TwoPhase
from lioncub.errors import ConfigError
from lioncub.kernels.layout import Layout
from lioncub.transport.comm import Comm
from lioncub.wire.envelope import Envelope, Steps, joined
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

    def exchange(self, mail: Envelope, codec: Codec, payload: Tensor, dtype: torch.dtype) -> Steps[Outcome]:
        yield from mail.exchange_headers()
        node, dense = mail.among(self._node(mail.comm), 1), Dense()
        local = yield from TwoPhase().exchange(node, dense, payload, dtype)
        mean = dense.mean(local.combined, local.ballot).to(dtype)

        payload = codec.encode(mean, mail.layout, mail.header.step)
        share_blocks = len(payload) // node.size
        first = node.index * share_blocks
        header = _node_header(node.headers)
        counterparts = mail.among(self._counterparts(mail.comm), 3, header=header, first_block=first)
        share = yield from self._outer.combine(counterparts, codec, payload[first : first + share_blocks])

        last = mail.among(node.comm, 6, headers=node.headers)
        combined = joined((yield from last.all_gather(share))).view(len(payload), -1)
        return Outcome(codec, combined, counterparts.ballot(), payload.unsqueeze(0), counterparts.index, mail.headers)

    def combine(self, mail: Envelope, codec: Codec, payload: Tensor) -> Steps[Tensor]:
        raise AssertionError("nodes average before they encode: use exchange()")

    def traffic(self, wire: Wire, comm: Comm) -> Traffic:
        node, counterparts = self._node(comm), self._counterparts(comm)
        floats = Dense().up_block_bytes
        share = replace(wire, blocks=wire.blocks // node.size)
        outcome = wire.down(share.blocks)
        return (
            wire.headers(comm.size)
            + TwoPhase().traffic(replace(wire, up_block_bytes=floats, down_block_bytes=floats), node)
            + self._outer.traffic(share, counterparts)
            + Traffic.with_each(node.size - 1, outcome, outcome)
        )


def _node_header(headers: tuple[Header, ...]) -> Header:
    """What a node says to the others: it has what any of its workers has, and abstains when all of them do."""
    flags = headers[0].flags if all(header.abstains for header in headers) else Flags.NONE
    present = tuple(any(header.votes_on(tensor) for header in headers) for tensor in range(len(headers[0].present)))
    return replace(headers[0], flags=flags, present=present)
