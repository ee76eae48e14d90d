"""What travels with every payload, and what workers conclude from it together.

A header says who sent the message, for which step and bucket, which tensors the sender has gradients for, and carries
short fingerprints of its plan, its hyperparameters and its parameters. Every worker sees every header, so all reach
the same verdict, and nobody is left waiting for someone who raised.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntFlag
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from lioncub.errors import (
    AgreementError,
    GradientChangedError,
    QuorumError,
    ReplicasDifferError,
    SparseGradientError,
    WireError,
    name_ranks,
)
from lioncub.layout import Ballot, Layout
from lioncub.reputation import UNKNOWN

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
    """How often the sender's votes agreed with the outcome of the step before; see :mod:`~lioncub.reputation`."""
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


@lru_cache(maxsize=1024)
def _voters(votes: tuple[bool, ...]) -> tuple[int, ...]:
    return tuple(voter for voter, votes_here in enumerate(votes) if votes_here)


def ballot(headers: Sequence[Header], layout: Layout, step: int) -> Ballot:
    """Who votes on which tensor of a bucket."""
    nothing = (False,) * len(layout.lengths)
    votes = [nothing if header.abstains else header.present for header in headers]
    return Ballot.of(layout, step, [_voters(of_tensor) for of_tensor in zip(*votes, strict=True)])


def check(headers: Sequence[Header], *, quorum: int, what: str, repaired: bool = False) -> None:
    """Raise, on every worker alike, when these headers forbid the step. ``what`` names the bucket's parameters.

    ``repaired``: replicas that differed when these headers were written are the same by now.
    """
    _same(headers, "version", lambda r: AgreementError(f"the wire version differs on {name_ranks(r)}"))
    _same(headers, "plan", lambda r: AgreementError(f"the parameters or settings of {name_ranks(r)} have changed"))
    _same(headers, "bucket", lambda r: WireError(f"{name_ranks(r)} sent another bucket than {what}"))
    _same(headers, "step", lambda r: AgreementError(_step_message(headers, r)))
    if replanning := flagged(headers, Flags.REPLANNING):
        raise AgreementError(
            f"{name_ranks(replanning)} froze, thawed, added or loaded parameters, the others did not: do it on every "
            "worker before the same step"
        )
    if abandoned := flagged(headers, Flags.ABANDONED):
        raise AgreementError(
            f"{name_ranks(abandoned)} dropped the batch of step {headers[0].step} after backward, the others did not. "
            "Nothing was changed, and the next step can go on: drop batches on every worker alike"
        )
    _same(
        headers,
        "hyper",
        lambda r: AgreementError(
            f"lr, betas, memory, warmup or weight_decay differ at step {headers[0].step} on {name_ranks(r)}: give "
            "every worker the same param_groups and step schedulers alike"
        ),
    )
    if not repaired:
        _same(
            headers,
            "fingerprint",
            lambda r: ReplicasDifferError(
                f"the parameters {what} are not the same on {name_ranks(r)} at step {headers[0].step}: something "
                "outside the optimizer wrote to them, or memory is faulty. Restart from a checkpoint, copy the "
                "parameters from a healthy worker with lioncub.broadcast_parameters(), or let the optimizer do it "
                "with repair=True",
                ranks=r,
            ),
        )
    if sparse := flagged(headers, Flags.SPARSE):
        raise SparseGradientError(
            f"sparse gradient in {what} on {name_ranks(sparse)}: use dense gradients (nn.Embedding(sparse=False))"
        )
    if changed := flagged(headers, Flags.CHANGED):
        raise GradientChangedError(changed_message(changed, "a gradient"))
    voters = sum(not header.abstains for header in headers)
    if voters < quorum and len(flagged(headers, Flags.ABSENT)) < len(headers):
        silent = [header.rank for header in headers if header.abstains]
        raise QuorumError(
            f"only {voters} of {len(headers)} workers have a finite gradient for {what} at step {headers[0].step} "
            f"(quorum {quorum}); NaN, Inf or no data on {name_ranks(silent)}. Nothing was changed: lower the learning "
            "rate, clip gradients, or skip this batch and go on"
        )


def changed_message(ranks: Sequence[int], what: str) -> str:
    return (
        f"{what} changed on {name_ranks(ranks)} after backward had sent it. Clipping, unscaling and a second backward "
        "need overlap=False; for accumulation, run all but the last backward inside no_sync(); to drop a batch, call "
        "optimizer.zero_grad(), not model.zero_grad(); a parameter belongs to one lioncub optimizer only"
    )


def flagged(headers: Sequence[Header], flag: Flags) -> list[int]:
    return [header.rank for header in headers if flag in header.flags]


def odd_ones_out(values: Sequence[object]) -> list[int]:
    """Positions that differ from the most common value; from the first worker's where that is a draw."""
    if len(set(values)) < 2:
        return []
    counts = Counter(values)
    normal = max(counts, key=lambda value: (counts[value], value == values[0]))
    return [position for position, value in enumerate(values) if value != normal]


def _same(headers: Sequence[Header], field: str, error: Callable[[list[int]], Exception]) -> None:
    odd = odd_ones_out([getattr(header, field) for header in headers])
    if odd:
        raise error([headers[position].rank for position in odd])


def _step_message(headers: Sequence[Header], ranks: Sequence[int]) -> str:
    steps = ", ".join(f"worker {header.rank} at step {header.step}" for header in headers)
    return f"workers are at different steps ({steps}): {name_ranks(ranks)} skipped or repeated a step()"
