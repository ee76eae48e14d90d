"""Agreement before the first exchange: workers that would not fit together learn it from a message that always fits."""

from __future__ import annotations

import hashlib
import secrets
import struct
from collections.abc import Sequence

from torch import Tensor

from lioncub import kernels
from lioncub.errors import AgreementError, ReplicasDifferError, name_ranks
from lioncub.transport.comm import Comm
from lioncub.wire.consensus import odd_ones_out

_HELLO = struct.Struct("<32sIIQ")  # SHA-256 of the description, its length, CRC-32 of the parameters, a nonce
_TAG_HELLO, _TAG_TEXT, _TAG_LENGTH, TAG_COPY, TAG_CRC = 1, 2, 3, 4, 5
FIRST_FREE_TAG = 8


def agree(comm: Comm, plan: bytes, params: Sequence[Tensor]) -> int:
    """Compare plans and parameters with all workers; raise on every one of them if any differs.

    Returns a number that is the same on all workers, and new each time.
    """
    crc = crc_of(params)
    hello = _HELLO.pack(hashlib.sha256(plan).digest(), len(plan), crc, secrets.randbits(64))
    answers = [_HELLO.unpack(raw) for raw in comm.gather_rows(hello, _TAG_HELLO)]
    if odd_ones_out([digest for digest, *_ in answers]):
        longest = max(length for _, length, *_ in answers)
        texts = comm.gather_rows(plan.ljust(longest), _TAG_TEXT)
        raise AgreementError(_difference(comm, [text.decode().rstrip(" ").split("\n") for text in texts]))
    odd = odd_ones_out([crc for _, _, crc, _ in answers])
    if odd:
        ranks = [comm.global_rank(index) for index in odd]
        same = comm.global_rank(next(index for index in range(comm.size) if index not in odd))
        raise ReplicasDifferError(
            f"the parameters of {name_ranks(ranks)} are not those of worker {same} before the first step. Start "
            "every worker from the same weights: the same seed, or lioncub.broadcast_parameters(model) before the "
            "optimizer is made",
            ranks,
        )
    return int(answers[0][3])


def crc_of(params: Sequence[Tensor]) -> int:
    """One number for all their bits."""
    crc = 0
    for param in params:
        crc = kernels.fingerprint(param, crc)
    return crc


def gather_bytes(comm: Comm, data: bytes) -> list[bytes]:
    """What every worker has to say, of any length, in their order. All workers must call it together."""
    if comm.size == 1:
        return [data]
    lengths = [int.from_bytes(raw, "little") for raw in comm.gather_rows(len(data).to_bytes(8, "little"), _TAG_LENGTH)]
    padded = comm.gather_rows(data.ljust(max(1, *lengths)), _TAG_TEXT)
    return [raw[:length] for raw, length in zip(padded, lengths, strict=True)]


def _difference(comm: Comm, plans: Sequence[Sequence[str]]) -> str:
    """The first line that is not the same everywhere, and who has what."""
    for number in range(max(map(len, plans))):
        lines = [plan[number] if number < len(plan) else "nothing more" for plan in plans]
        odd = odd_ones_out(lines)
        if odd:
            others = next(line for index, line in enumerate(lines) if index not in odd)
            ranks = name_ranks([comm.global_rank(index) for index in odd])
            return (
                f"workers do not agree: {ranks} has “{lines[odd[0]]}” where the others have “{others}”. Give every "
                "worker the same model, optimizer settings and lioncub version"
            )
    raise AssertionError("digests differ, so some line does")
