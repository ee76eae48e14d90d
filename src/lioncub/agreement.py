"""Agreement before the first exchange: workers that would not fit together learn it from a message that always fits."""

from __future__ import annotations

import hashlib
import secrets
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lioncub import guard, kernels
from lioncub.buckets import Bucket
from lioncub.comm import Comm
from lioncub.errors import AgreementError, ReplicasDifferError, name_ranks
from lioncub.guard import odd_ones_out
from lioncub.slots import Slot

_HELLO = struct.Struct("<32sIIQ")  # SHA-256 of the description, its length, CRC-32 of the parameters, a nonce
_TAG_HELLO, _TAG_TEXT, _TAG_LENGTH, _TAG_COPY, _TAG_CRC = 1, 2, 3, 4, 5
FIRST_FREE_TAG = 8

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
        lines = [f"wire version {guard.WIRE_VERSION}", *settings, f"{len(slots)} parameters"]
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


def agree(comm: Comm, plan: Plan, params: Sequence[Tensor]) -> int:
    """Compare plans and parameters with all workers; raise on every one of them if any differs.

    Returns a number that is the same on all workers, and new each time.
    """
    crc = crc_of(params)
    hello = _HELLO.pack(hashlib.sha256(plan.text).digest(), len(plan.text), crc, secrets.randbits(64))
    answers = [_HELLO.unpack(raw) for raw in comm.gather_rows(hello, _TAG_HELLO)]
    if odd_ones_out([digest for digest, *_ in answers]):
        longest = max(length for _, length, *_ in answers)
        texts = comm.gather_rows(plan.text.ljust(longest), _TAG_TEXT)
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


def broadcast_parameters(module: nn.Module, process_group: object = None) -> None:
    """Copy parameters and buffers from the group's first worker to all others, as DistributedDataParallel does."""
    tensors = [*module.parameters(), *module.buffers()]
    comm = Comm.of(process_group, tensors[0].device if tensors else torch.device("cpu"))
    if comm.size == 1:
        return
    for tensor in tensors:
        message = tensor.detach().to(comm.device).contiguous()
        comm.broadcast(message).wait()
        tensor.detach().copy_(message)


def copy_from_majority(comm: Comm, params: Sequence[Tensor], problem: ReplicasDifferError) -> tuple[int, list[int]]:
    """Overwrite the parameters of whoever differs with the majority's; returns whose those are, and who differed.

    All workers call it. ``problem`` is what was seen in a part of the parameters: now all of them are compared. Without
    a majority it is raised on all workers.
    """
    ranks = comm.global_ranks
    odd = odd_ones_out(comm.gather_rows(struct.pack("<Q", crc_of(params)), _TAG_CRC))
    if not odd or 2 * len(odd) >= comm.size:
        raise problem
    source = next(index for index in range(comm.size) if index not in odd)
    for param in params:
        message = param.detach().to(comm.device).contiguous().view(-1).view(torch.uint8)
        if comm.index == source:
            comm.swap(dict.fromkeys(odd, message), {}, _TAG_COPY).wait()
        elif comm.index in odd:
            message = torch.empty_like(message)
            comm.swap({}, {source: message}, _TAG_COPY).wait()
            param.detach().copy_(message.view(param.dtype).view(param.shape))
    if len(set(comm.gather_rows(struct.pack("<Q", crc_of(params)), _TAG_CRC))) > 1:
        raise problem
    return ranks[source], [ranks[index] for index in odd]


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
