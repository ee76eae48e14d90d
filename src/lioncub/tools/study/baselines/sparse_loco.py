"""SparseLoCo: Sarfi et al., arXiv 2508.15706."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lioncub.tools.study.baselines.blocks import Blocks
from lioncub.tools.study.baselines.local_steps import LocalSteps
from lioncub.tools.study.baselines.packing import pack, pack_floats, packed_bytes, unpack, unpack_floats

BINS = 4
SIGMAS_PER_BIN = 1.5


class SparseLoCo(LocalSteps):
    """H steps of AdamW on every worker; then 2 bits of the largest entries of each block, with error feedback.

        worker:  e_i ← β·e_i + (x - y_i),   c_i = 2 bits of the top 64 of each 64x64 block of e_i,   e_i ← e_i - c_i
        all:     x ← x - ``outer_lr``·mean(c_i),   y_i ← x

    Every worker's message goes to all: 12 bits that say where and 2 that say how much for 64 of 4096 entries, 16 bytes
    a tensor for the four values; 0.22/H bits up, n times as many down. Of blocks with fewer entries as many are sent.
    """

    def __init__(
        self, *arguments: Any, outer_lr: float = 1.0, feedback: float = 0.95, top: int = 64, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self.outer_lr = outer_lr
        self.feedback = feedback
        self.blocks = Blocks(self.params, top)
        self.kept = self.blocks.kept_by_tensor
        self.errors = self.private()  # in the order of blocks
        self.messages: list[bytes] = []

    def encode(self, worker: int, difference: Tensor) -> bytes:
        error = self.errors[worker].mul_(self.feedback).add_(self.blocks.cut(difference))
        places = self.blocks.largest(error)
        parts = [quantised(part) for part in error[places].split(self.kept)]
        codes, values = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        message = self.blocks.pack_places(places) + pack(codes.numpy(), 2) + pack_floats(values)
        error[places] -= self.decode(message)[1]
        return message

    def decode(self, message: bytes) -> tuple[Tensor, Tensor]:
        """The places in the order of blocks, and what a worker says of them."""
        codes_at = self.blocks.places_bytes
        values_at = codes_at + packed_bytes(self.blocks.num_kept, 2)
        codes = torch.from_numpy(unpack(message[codes_at:values_at], self.blocks.num_kept, 2))
        values = unpack_floats(message[values_at:]).split(BINS)
        said = [own[part] for own, part in zip(values, codes.split(self.kept), strict=True)]
        return self.blocks.unpack_places(message), torch.cat(said)

    def receive(self, worker: int, message: bytes) -> None:
        self.messages.append(message)

    def answer(self) -> bytes:
        answer, self.messages = b"".join(self.messages), []
        return answer

    def displacement(self, answer: bytes) -> Tensor:
        length = len(answer) // self.workers
        total = torch.zeros(self.numel)
        for worker in range(self.workers):
            places, values = self.decode(answer[worker * length : (worker + 1) * length])
            total[places] += values
        return self.blocks.joined(total / self.workers).mul_(self.outer_lr)


def quantised(part: Tensor) -> tuple[Tensor, Tensor]:
    """Codes of 0 to 3, and the value of each: the mean of the entries that have the code.

    Bins are 1.5σ wide, the third about the mean, the first and the last open.
    """
    centred = part - part.mean()
    width = SIGMAS_PER_BIN * centred.norm() / max(len(part) - 1, 1) ** 0.5
    codes = (centred / width.clamp(min=torch.finfo().tiny) + BINS // 2).round_().clamp_(0, BINS - 1).int()
    sums = torch.zeros(BINS).index_add_(0, codes, part)
    return codes, sums / torch.bincount(codes, minlength=BINS).clamp(min=1)
