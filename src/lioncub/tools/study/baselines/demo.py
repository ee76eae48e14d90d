"""DeMo: Peng, Quesnelle, Kingma, arXiv 2411.19870."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lioncub.tools.study.baselines.blocks import Blocks
from lioncub.tools.study.baselines.exchange import Flat
from lioncub.tools.study.baselines.packing import pack_floats, unpack_floats


class DeMo(Flat):
    """Workers send the largest cosine coefficients of their momenta, which lose what was sent.

        worker:  m_i ← β·m_i + lr·g_i,   q_i = top 32 of the DCT of each 64x64 block of m_i,   m_i ← m_i - IDCT(q_i)
        all:     x ← (1 - lr·wd)·x - lr·sign(IDCT(mean of q_i over those that sent the coefficient))

    Every worker's message goes to all: a
    float32 and 12 bits that say where for 32 of 4096 entries, 0.34 bits up; n times as many down. Of blocks with fewer
    entries as many are sent, as in public code.
    """

    def __init__(self, *arguments: Any, beta: float = 0.999, top: int = 32, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.beta = beta
        self.blocks = Blocks(self.params, top)
        self.m = [torch.zeros(self.numel) for _ in range(self.workers)]  # in the order of blocks
        self.messages: list[bytes] = []

    def send(self, worker: int, gradients: Sequence[Tensor]) -> int:
        m = self.m[worker].mul_(self.beta).add_(self.blocks.cut(self.flat(gradients)), alpha=self.lr)
        coefficients = transformed(self.blocks, m)
        places = self.blocks.largest(coefficients)
        message = self.blocks.pack_places(places) + pack_floats(coefficients[places])
        sent = torch.zeros(self.numel)
        sent[places] = coefficients[places]
        m.sub_(transformed(self.blocks, sent, inverse=True))
        self.messages.append(message)
        return len(message)

    def move(self, lr: float) -> int:
        answer, self.messages = b"".join(self.messages), []
        length = len(answer) // self.workers
        total, senders = torch.zeros(2, self.numel)
        for worker in range(self.workers):
            message = answer[worker * length : (worker + 1) * length]
            places = self.blocks.unpack_places(message)
            total[places] += unpack_floats(message[self.blocks.places_bytes :])
            senders[places] += 1
        direction = transformed(self.blocks, total / senders.clamp(min=1), inverse=True).sign_()
        self.displace(self.blocks.joined(direction) * lr, lr)
        return len(answer)


def transformed(blocks: Blocks, cut: Tensor, *, inverse: bool = False) -> Tensor:
    """The DCT of every block, by rows and by columns; ``cut`` is in the order of blocks, and so are coefficients."""
    parts = []
    for group in blocks.groups:
        rows, columns = dct(group.rows), dct(group.columns)
        if inverse:
            rows, columns = rows.T, columns.T
        part = cut[group.start : group.stop].view(group.count, group.rows, group.columns)
        parts.append((rows @ part @ columns.T).reshape(-1))
    return torch.cat(parts)


def dct(length: int) -> Tensor:
    """The orthonormal DCT-II as a matrix C: coefficients C·x, and back x = Cᵀ·coefficients."""
    if length not in _MATRICES:
        k, n = torch.meshgrid(torch.arange(length).double(), torch.arange(length).double(), indexing="ij")
        matrix = torch.cos(math.pi / length * (n + 0.5) * k) * math.sqrt(2 / length)
        matrix[0] = math.sqrt(1 / length)
        _MATRICES[length] = matrix.float()
    return _MATRICES[length]


_MATRICES: dict[int, Tensor] = {}
