"""The header of every message.

It says who sent the message, for which step and bucket, which tensors the sender has gradients for, and carries short
fingerprints of its plan, its hyperparameters and its parameters. What all workers conclude from everybody's headers is
in :mod:`lioncub.wire.consensus`.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntFlag
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from lioncub.errors import WireError
from lioncub.wire.outliers import UNKNOWN

WIRE_VERSION = 2
FINGERPRINT_STEPS = 64
"""Every parameter is in the fingerprint of one of this many steps."""

_FIXED = struct.Struct("<HHHHQIIIIHxxI")  # version flags rank bucket step plan hyper fingerprint tensors agreement crc
_CRC = struct.Struct("<I")


class Flags(IntFlag):
    """Why a worker abstains from a whole bucket. Those other than NOT_FINITE and ABSENT stop all workers.

    STOPPING is no reason to abstain: the worker takes part and asks all to stop after this step.
    """

    NONE = 0
    NOT_FINITE = 1
    SPARSE = 2
    CHANGED = 4
    REPLANNING = 8
    ABANDONED = 16
    ABSENT = 32
    STOPPING = 64

    @property
    def abstains(self) -> bool:
        return bool(self & ~Flags.STOPPING)


@dataclass(frozen=True)
class Stamp:
    """What the headers of one moment have in common on one worker."""

    step: int
    plan: int
    hyper: int
    flags: Flags = Flags.NONE
    agreement: int = UNKNOWN
    """Of the step before, as on the wire."""


@dataclass(frozen=True)
class Header:
    """One worker's part of a message that is not payload."""

    rank: int
    bucket: int
    step: int
    plan: int
    hyper: int
    fingerprint: int
    present: tuple[bool, ...]
    flags: Flags = Flags.NONE
    agreement: int = UNKNOWN
    """How often the sender's votes agreed with the outcome of the step before; see :mod:`~lioncub.wire.outliers`."""
    version: int = WIRE_VERSION

    @staticmethod
    def num_bytes(num_tensors: int) -> int:
        """Fixed part and a bit for each tensor, a multiple of 8 so that payloads stay aligned."""
        return _FIXED.size + -(-num_tensors // 64) * 8

    @property
    def abstains(self) -> bool:
        return self.flags.abstains

    def votes_on(self, tensor: int) -> bool:
        return not self.abstains and self.present[tensor]

    def pack(self) -> Tensor:
        """The bytes, with their CRC-32 in the last fixed field."""
        bitmap = _bitmap(self.present)
        words = (self.version, self.flags, self.rank, self.bucket, self.step, self.plan, self.hyper)
        fixed = _FIXED.pack(*words, self.fingerprint, len(self.present), self.agreement, 0)
        crc = _CRC.pack(zlib.crc32(fixed + bitmap))
        return torch.frombuffer(bytearray(fixed[: -_CRC.size] + crc + bitmap), dtype=torch.uint8)

    @classmethod
    def unpack(cls, raw: Tensor) -> Header:
        """The inverse of :meth:`pack`; raises :class:`WireError` for bytes that no worker wrote."""
        return cls.parse(raw.cpu().numpy().tobytes())

    @classmethod
    def parse(cls, data: bytes) -> Header:
        try:
            fields = _FIXED.unpack_from(data)
        except struct.error as problem:
            raise WireError(f"a message header of {len(data)} bytes is too short") from problem
        version, flags, rank, bucket, step, plan, hyper, fingerprint, tensors, agreement, crc = fields
        zeroed = data[: _FIXED.size - _CRC.size] + bytes(_CRC.size) + data[_FIXED.size :]
        if zlib.crc32(zeroed) != crc or len(data) != cls.num_bytes(tensors):
            raise WireError("a message header arrived damaged: its checksum does not match")
        present = _present(data[_FIXED.size :], tensors)
        return cls(rank, bucket, step, plan, hyper, fingerprint, present, Flags(flags), agreement, version)


# From one step to the next, and from one worker to the next, the same gradients are there: the answers are kept.


@lru_cache(maxsize=1024)
def _bitmap(present: tuple[bool, ...]) -> bytes:
    bits = np.packbits(np.array(present, dtype=bool), bitorder="little").tobytes()
    return bits.ljust(Header.num_bytes(len(present)) - _FIXED.size, b"\0")


@lru_cache(maxsize=1024)
def _present(bitmap: bytes, tensors: int) -> tuple[bool, ...]:
    bits = np.unpackbits(np.frombuffer(bitmap, dtype=np.uint8), bitorder="little", count=tensors)
    return tuple(bits.astype(bool).tolist())
