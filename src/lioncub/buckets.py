"""Parameters grouped into buckets: what is encoded and exchanged together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch

from lioncub import kernels, rule
from lioncub.codecs import Codec
from lioncub.collectives import Collective, Outcome, Parcel, Traffic, Wire
from lioncub.comm import Comm
from lioncub.guard import FINGERPRINT_STEPS, Flags, Header, Stamp
from lioncub.layout import Layout
from lioncub.slots import Slot


@dataclass(frozen=True, eq=False)
class Bucket:
    """Tensors that share a codec, a device and a precision, and travel together."""

    index: int
    slots: tuple[Slot, ...]
    layout: Layout
    codec: Codec
    collective: Collective

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

    def traffic(self, comm: Comm) -> Traffic:
        num_voters = self.collective.num_voters(comm.size)
        return self.collective.traffic(Wire.of(self.codec, self.layout, num_voters), comm)

    def parcel(self, comm: Comm, stamp: Stamp, tag: int) -> Parcel:
        """Read gradients and momenta, write neither."""
        dtype = rule.compute_dtype(self.slots[0].param)
        u = torch.zeros(self.layout.padded_numel, dtype=dtype, device=self.device)
        present, flags = [], stamp.flags
        for slot, part in self.parts():
            g = slot.gradient
            present.append(g is not None)
            if g is None:
                continue
            if g.layout != torch.strided:
                flags |= Flags.SPARSE
                continue
            rule.update_vector(slot.momentum, g, slot.group["betas"][0], out=u[part].view(slot.param.shape))
        if not kernels.all_finite(u):
            flags |= Flags.NOT_FINITE
        if flags:
            u.zero_()
        header = Header(
            rank=comm.rank,
            bucket=self.index,
            step=stamp.step,
            plan=stamp.plan,
            hyper=stamp.hyper,
            fingerprint=self.fingerprint(stamp.step),
            present=tuple(present),
            flags=flags,
        )
        return Parcel(self.codec, self.layout, header, u, tag)

    def fingerprint(self, step: int) -> int:
        """CRC-32 of this step's 1/64 of the bucket's parameters."""
        turn = step % FINGERPRINT_STEPS
        start = self.layout.numel * turn // FINGERPRINT_STEPS
        stop = self.layout.numel * (turn + 1) // FINGERPRINT_STEPS
        crc = 0
        for slot, part in self.parts():
            first, last = max(part.start, start) - part.start, min(part.stop, stop) - part.start
            if first < last:
                crc = kernels.fingerprint(slot.param.detach().reshape(-1)[first:last], crc)
        return crc

    def apply_(self, outcome: Outcome, advancing: Sequence[bool]) -> tuple[int, int]:
        """Move the parameters, advance some momenta; returns on how many elements this worker agreed, and voted."""
        direction = outcome.codec.decode(outcome.combined, outcome.ballot).to(self.device)
        for (slot, part), advances in zip(self.parts(), advancing, strict=True):
            if not outcome.ballot.voters_at(part.start):
                continue  # nobody has a gradient: torch's optimizers leave such a parameter alone, decay included
            lr, weight_decay = float(slot.group["lr"]), slot.group["weight_decay"]
            rule.apply_(slot.param, direction[part].view(slot.param.shape), lr, weight_decay)
            g = slot.gradient
            if g is not None and advances:
                rule.advance_(slot.momentum, g, slot.group["betas"][1])
        return self._agreement(outcome)

    def _agreement(self, outcome: Outcome) -> tuple[int, int]:
        spans = [span for span in outcome.ballot.spans if outcome.voter in span.voters]
        if not spans:
            return 0, 0
        matches = outcome.codec.matches(outcome.payload.to(outcome.combined.device), outcome.combined, outcome.ballot)
        cuts = [(span.start, min(span.stop, self.layout.numel)) for span in spans]
        agreed = sum(kernels.count_bits(matches, start, stop) for start, stop in cuts)
        return agreed, sum(stop - start for start, stop in cuts)


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
    """Slots in reverse order, as backward reaches them, cut into buckets of about ``bucket_numel`` elements."""
    total = sum(slot.param.numel() for slot in slots)
    limit = bucket_numel or min(max(total // 8, 1 << 20), 1 << 24)
    buckets: list[Bucket] = []
    filling: dict[object, _Open] = {}

    def close(key: object) -> None:
        lot = filling.pop(key).slots
        codec = lot[0].group["codec"]
        layout = Layout(tuple(slot.param.numel() for slot in lot), comm.size)
        used = collective.codec_for(codec, comm.size)
        buckets.append(Bucket(len(buckets), tuple(lot), layout, used, collective.resolve(used, layout, comm)))

    for slot in reversed([slot for slot in slots if slot.param.numel()]):
        key = (slot.group["codec"], slot.param.device, rule.compute_dtype(slot.param))
        bucket = filling.setdefault(key, _Open())
        bucket.slots.append(slot)
        bucket.numel += slot.param.numel()
        if bucket.numel >= limit:
            close(key)
    for unfilled in list(filling):
        close(unfilled)
    return buckets
