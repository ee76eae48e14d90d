"""Parameters grouped into buckets: what is encoded and exchanged together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor

from lioncub import kernels, rule
from lioncub.codecs import Codec
from lioncub.collectives import Collective, Outcome, Traffic, Wire
from lioncub.errors import ConfigError
from lioncub.kernels import Cut, Part, UpdateVector
from lioncub.kernels.layout import Layout
from lioncub.step.in_flight import InFlight
from lioncub.step.parameters import Slot
from lioncub.step.validation import Rounding
from lioncub.transport.comm import Comm
from lioncub.wire.envelope import Envelope
from lioncub.wire.headers import FINGERPRINT_STEPS, Flags, Header, Stamp

TYPICAL, LARGEST = 1 << 21, 1 << 24
"""Elements of a bucket, where the user says nothing: about so many in a small model, at most so many in a large one."""

USUAL_BUCKETS = 3
"""Of a model that is not large: more would hide more of the wire, but every message costs both ends processor time."""

MOST_BUCKETS = 65_000
"""A header has 16 bits for a bucket's number."""


@dataclass(frozen=True, eq=False)
class Bucket:
    """Tensors that share a codec, a device and a precision, and travel together."""

    index: int
    slots: tuple[Slot, ...]
    layout: Layout
    codec: Codec
    collective: Collective
    traffic: Traffic
    """Of one exchange, for this worker."""

    @property
    def title(self) -> str:
        """The bucket's parameters in a few words, for errors."""
        first, last = self.slots[0].name, self.slots[-1].name
        return first if len(self.slots) == 1 else f"{first} … {last} ({len(self.slots)} tensors)"

    @property
    def device(self) -> torch.device:
        return self.slots[0].param.device

    def parts(self) -> Iterable[tuple[Slot, slice]]:
        """Every slot with its place in the bucket."""
        for slot, start, length in zip(self.slots, self.layout.starts, self.layout.lengths, strict=True):
            yield slot, slice(start, start + length)

    @property
    def dtype(self) -> torch.dtype:
        """The precision that is computed in."""
        return rule.computed_in(self.slots[0].param)

    def exchange(self, comm: Comm, stamp: Stamp, tag: int) -> tuple[Header, InFlight[Outcome]]:
        """The exchange of this step, encoded and ready to be launched. Reads gradients and momenta, writes neither."""
        header, payload = self._encode(comm, stamp)
        mail = Envelope(comm, self.layout, header, tag, collectives=self.collective.ordered)
        steps = self.collective.exchange(mail, self.codec, payload, self.dtype)
        return header, InFlight(steps, ordered=self.collective.ordered)

    def _encode(self, comm: Comm, stamp: Stamp) -> tuple[Header, Tensor]:
        gradients = [slot.gradient for slot in self.slots]
        flags = stamp.flags
        if any(g is not None and g.layout != torch.strided for g in gradients):
            flags |= Flags.SPARSE
        codec, u = self.collective.first_codec(self.codec), self._update_vector(gradients)
        if not flags.abstains:
            payload, finite = codec.encode_update(u, stamp.step)
            if not finite:
                flags |= Flags.NOT_FINITE
        if flags.abstains:
            payload, _ = codec.encode_update(u.silent(), stamp.step)
        header = Header(
            rank=comm.rank,
            bucket=self.index,
            step=stamp.step,
            plan=stamp.plan,
            hyper=stamp.hyper,
            fingerprint=self.fingerprint(stamp.step),
            present=tuple(g is not None for g in gradients),
            flags=flags,
            agreement=stamp.agreement,
        )
        return header, payload

    def _update_vector(self, gradients: Sequence[Tensor | None]) -> UpdateVector:
        parts = [
            Part() if g is None else rule.update(slot.momentum, g, slot.group, slot.spare)
            for slot, g in zip(self.slots, gradients, strict=True)
        ]
        return UpdateVector(parts, self.layout, self.dtype, self.device)

    def fingerprint(self, step: int) -> int:
        """CRC-32 of this step's 1/64 of the bucket's parameters."""
        turn = step % FINGERPRINT_STEPS
        start = self.layout.numel * turn // FINGERPRINT_STEPS
        stop = self.layout.numel * (turn + 1) // FINGERPRINT_STEPS
        crc = 0
        for slot, part in self.parts():
            first, last = max(part.start, start) - part.start, min(part.stop, stop) - part.start
            if first < last:
                crc = kernels.fingerprint(slot.param, crc, first=first, last=last)
        return crc

    def apply_(self, outcome: Outcome, advancing: Sequence[bool], rounding: Rounding) -> tuple[int, int]:
        """Move the parameters, advance some momenta; returns on how many elements this worker agreed, and voted."""
        counts = self._agreement(outcome)
        moves = []
        for (slot, part), advances in zip(self.parts(), advancing, strict=True):
            num_voters = len(outcome.ballot.voters_at(part.start))
            if not num_voters:
                continue  # nobody has a gradient: torch's optimizers leave such a parameter alone, decay included
            g = slot.gradient if advances and slot.spare is None else None
            noise = rounding.noise(slot.param, slot.number, outcome.ballot.step)
            moves.append(
                rule.move(
                    slot.param, slot.momentum, g, slot.group, start=part.start, num_voters=num_voters, noise=noise
                )
            )
        direction = outcome.codec.direction(outcome.combined, outcome.ballot)
        kernels.apply_(moves, direction._replace(payload=direction.payload.to(self.device)))
        for slot, advances in zip(self.slots, advancing, strict=True):
            if advances and slot.spare is not None:
                slot.swap_()
        return counts

    def _agreement(self, outcome: Outcome) -> tuple[int, int]:
        mine = [span for span in outcome.ballot.spans if outcome.voter in span.voters]
        cuts = [Cut(span.start, min(span.stop, self.layout.numel), len(span.voters)) for span in mine]
        payload = outcome.payload.to(outcome.combined.device)
        agreed = outcome.codec.count_matches(payload, outcome.combined, outcome.ballot, cuts)
        return agreed, sum(cut.stop - cut.start for cut in cuts)


@dataclass
class _Open:
    slots: list[Slot] = field(default_factory=list)
    numel: int = 0


def plan_buckets(
    slots: Sequence[Slot],
    comm: Comm,
    collective: Collective,
    bucket_numel: int | None,
) -> list[Bucket]:
    """Slots in reverse order, as backward reaches them, cut into buckets of about ``bucket_numel`` elements.

    By default there are three, each smaller than the one before: backward ends soon after the last ones left, and hides
    little of them. More buckets would hide more, but each costs its headers and messages.
    """
    limits = [bucket_numel] if bucket_numel else usual_limits(sum(slot.param.numel() for slot in slots))
    buckets: list[Bucket] = []
    filling: dict[object, _Open] = {}

    def close(key: object) -> None:
        lot = filling.pop(key).slots
        codec = lot[0].group["codec"]
        layout = Layout(tuple(slot.param.numel() for slot in lot), comm.size)
        used = collective.codec_for(codec, comm.size)
        resolved = collective.resolve(used, layout, comm)
        traffic = resolved.traffic(Wire.of(used, layout, resolved.num_voters(comm.size)), comm)
        buckets.append(Bucket(len(buckets), tuple(lot), layout, used, resolved, traffic))

    for slot in reversed([slot for slot in slots if slot.param.numel()]):
        key = (slot.group["codec"], slot.param.device, rule.computed_in(slot.param))
        bucket = filling.setdefault(key, _Open())
        bucket.slots.append(slot)
        bucket.numel += slot.param.numel()
        if bucket.numel >= limits[min(len(buckets), len(limits) - 1)]:
            close(key)
    for unfilled in list(filling):
        close(unfilled)
    if len(buckets) > MOST_BUCKETS:
        raise ConfigError(f"bucket_numel={bucket_numel} makes {len(buckets)} buckets: {MOST_BUCKETS} at most")
    return buckets


def usual_limits(total: int) -> list[int]:
    """Sizes of buckets for ``total`` elements: after k of n, (1 - k/n)^1.5 of them are left."""
    count = max(min(total // TYPICAL, USUAL_BUCKETS), math.ceil(1.5 * total / LARGEST), 1)
    left = [total * (1 - k / count) ** 1.5 for k in range(count + 1)]
    return [math.ceil(before - after) for before, after in pairwise(left)]
