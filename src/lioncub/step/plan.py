"""All that must be the same on every worker, in words."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from lioncub.step.buckets import Bucket
from lioncub.step.parameters import Slot
from lioncub.wire.headers import WIRE_VERSION

FACTS = ("betas", "memory", "warmup", "since", "weight_decay", "maximize", "codec")
"""What a group's settings are compared by, besides its learning rate."""


@dataclass(frozen=True)
class Plan:
    """All that must be the same on every worker, in words: one line a fact."""

    lines: tuple[str, ...]

    @classmethod
    def of(cls, slots: Sequence[Slot], buckets: Sequence[Bucket], settings: Sequence[str]) -> Plan:
        groups = list({id(slot.group): slot.group for slot in slots}.values())
        position = {id(group): number for number, group in enumerate(groups)}
        lines = [f"wire version {WIRE_VERSION}", *settings, f"{len(slots)} parameters"]
        for number, group in enumerate(groups):
            facts = ", ".join(f"{key}={group[key]!r}" for key in FACTS)
            lines.append(f"group {number}: lr={float(group['lr'])!r}, {facts}")
        for slot in slots:
            shape, dtype = tuple(slot.param.shape), slot.param.dtype
            lines.append(f"parameter {slot.name}: shape {shape}, {dtype}, group {position[id(slot.group)]}")
        for bucket in buckets:
            lines.append(f"bucket {bucket.title}: {bucket.layout.numel} elements by {bucket.collective}")
        return cls(tuple(lines))

    @property
    def text(self) -> bytes:
        return "\n".join(self.lines).encode()

    @property
    def number(self) -> int:
        """Short enough for every header."""
        return zlib.crc32(self.text)
