"""Momentum synchronisation: the pieces that are due, their exchange, and writing the averages back."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lioncub import rule
from lioncub.collectives import Collective, Outcome, Traffic, TwoPhase, Wire
from lioncub.kernels.layout import Layout
from lioncub.momentum.policy import MomentumSync, divergence, sample
from lioncub.step.in_flight import InFlight
from lioncub.step.parameters import Slot
from lioncub.transport.comm import Comm
from lioncub.wire import consensus
from lioncub.wire.envelope import Envelope, Steps, first_message_bytes
from lioncub.wire.headers import Header

BUCKET, SAMPLES = 0xFFFF, 0xFFFE
"""The numbers in the headers of averages, and of the samples by which tensors are chosen."""

NO_TENSORS = Layout((), 1)
"""Samples are of no bucket: nobody votes on them."""


@dataclass(frozen=True)
class Piece:
    """Elements ``start`` to ``stop`` of one momentum."""

    slot: Slot
    start: int
    stop: int

    @property
    def place(self) -> Tensor:
        return self.slot.momentum.view(-1)[self.start : self.stop]

    def advanced(self, *, with_gradient: bool) -> Tensor:
        """What the piece will be after this step, without changing it."""
        m, g = self.place, self.slot.gradient
        if g is None or not with_gradient:
            return m.clone()
        return rule.advanced(m, g.reshape(-1)[self.start : self.stop], self.slot.group)


class Synchronizer:
    """Applies a :class:`MomentumSync` policy to some slots. ``slot.state["synchronized"]`` says who is selected."""

    def __init__(self, policy: MomentumSync, slots: Sequence[Slot], comm: Comm) -> None:
        self.policy = policy
        self.comm = comm
        matching = policy.matching([(slot.name, slot.param) for slot in slots])
        self.slots = [slot for slot, matches in zip(slots, matching, strict=True) if matches and slot.param.numel()]
        self.num_parameters = sum(slot.param.numel() for slot in slots)
        for slot in self.slots:
            slot.state.setdefault("synchronized", policy.budget is None)

    def due(self, step: int) -> list[Piece]:
        """The pieces to average at ``step``."""
        selected = [slot for slot in self.slots if slot.state["synchronized"]]
        pieces = self.policy.pieces(step, [slot.param.numel() for slot in selected])
        return [Piece(selected[index], first, last) for index, first, last in pieces]

    def _layout(self, pieces: Sequence[Piece]) -> Layout:
        return Layout(tuple(piece.stop - piece.start for piece in pieces), self.comm.size)

    def _collective(self, layout: Layout) -> Collective:
        return TwoPhase().resolve(self.policy.codec, layout, self.comm)  # the fewest bytes: these are counted

    def exchange(self, pieces: Sequence[Piece], voted: set[int], step: int, tag: int) -> InFlight[Outcome]:
        """The exchange of some pieces, not launched yet. ``voted``: ids of the slots whose momentum advances now."""
        layout = self._layout(pieces)
        u = torch.zeros(layout.padded_numel)
        for piece, start in zip(pieces, layout.starts, strict=True):
            value = piece.advanced(with_gradient=id(piece.slot) in voted)
            u[start : start + value.numel()] = value
        header = Header(self.comm.rank, BUCKET, step, _digest(pieces), 0, 0, (True,) * len(pieces))
        collective, codec = self._collective(layout), self.policy.codec
        mail = Envelope(self.comm, layout, header, tag, collectives=collective.ordered)
        steps = collective.exchange(mail, codec, codec.encode(u, layout, step), u.dtype)
        return InFlight(steps, ordered=collective.ordered)

    def write_back_(self, pieces: Sequence[Piece], outcome: Outcome) -> None:
        mean = self.policy.codec.mean(outcome.combined, outcome.ballot)
        for piece, start in zip(pieces, self._layout(pieces).starts, strict=True):
            piece.place.copy_(mean[start : start + piece.stop - piece.start])

    def traffic(self, step: int) -> Traffic:
        """What synchronisation moves at ``step``."""
        traffic = Traffic()
        if pieces := self.due(step):
            layout = self._layout(pieces)
            wire = Wire.of(self.policy.codec, layout, self.comm.size)
            traffic += self._collective(layout).traffic(wire, self.comm)
        if measured := self.measured(step):
            row = first_message_bytes(0, sum(sample(slot.momentum).numel() for slot in measured) * 4)
            traffic += Traffic.with_each(self.comm.size - 1, row, row)
        return traffic

    # ---- choosing tensors by measured divergence --------------------------------------------------------------------

    def measured(self, step: int) -> list[Slot]:
        """The slots whose divergence is measured at ``step``: each once a period, so that no step carries a burst."""
        every = self.policy.every
        return self.slots[step % every :: every] if self.policy.budget is not None else []

    def gather_samples(self, step: int, tag: int) -> Steps[Tensor]:
        """Everybody's samples of some momenta as they are before this step, ``[workers, elements]``."""
        samples = torch.cat([sample(slot.momentum).cpu() for slot in self.measured(step)])
        mail = Envelope(self.comm, NO_TENSORS, Header(self.comm.rank, SAMPLES, step, 0, 0, 0, ()), tag)
        everybodys = yield from mail.all_gather(samples.view(torch.uint8))
        consensus.check(mail.headers, quorum=0, what="the samples of momenta")
        return everybodys.cpu().contiguous().view(torch.float32)

    def choose_(self, step: int, samples: Tensor | None) -> None:
        """Note what was measured; at the end of a period select the tensors of the next.

        The choice is the same on every worker, for all have seen the same samples.
        """
        measured = self.measured(step)
        if samples is not None:
            sizes = [sample(slot.momentum).numel() for slot in measured]
            for slot, part in zip(measured, samples.split(sizes, dim=1), strict=True):
                slot.state["divergence"] = divergence(part.numpy())
        if self.policy.chooses_at(step):
            found = [slot.state.get("divergence", 0.0) for slot in self.slots]
            chosen = self.policy.choose(found, [slot.param.numel() for slot in self.slots], self.num_parameters)
            for slot, selected in zip(self.slots, chosen, strict=True):
                slot.state["synchronized"] = selected


def _digest(pieces: Sequence[Piece]) -> int:
    """The same on workers that average the same."""
    return zlib.crc32(repr([(piece.slot.number, piece.start, piece.stop) for piece in pieces]).encode())
