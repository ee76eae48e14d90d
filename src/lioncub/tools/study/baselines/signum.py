"""D-SIGNUM: Bernstein et al., arXiv 1802.04434, as the baseline of Distributed Lion."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from lioncub.tools.study.baselines.exchange import Exchange
from lioncub.tools.study.baselines.packing import pack, pack_signs, unpack, unpack_signs


class Signum(Exchange):
    """m_i ← β·m_i + (1-β)·g_i on every worker, which sends δ_i = sign(m_i), 1 bit; x ← (1 - lr·wd)·x - lr·Δ.

    Δ = sign(Σ δ_i), 1 bit down. Among an even number of workers number t mod n votes twice.
    """

    def __init__(self, *arguments: Any, beta: float = 0.99, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.beta = beta
        self.m = self.private()
        self.ayes = np.zeros(self.numel, np.int32)

    def encode(self, worker: int, gradient: Tensor) -> bytes:
        self.m[worker].mul_(self.beta).add_(gradient, alpha=1 - self.beta)
        return pack_signs(self.m[worker], self.steps)

    def receive(self, worker: int, message: bytes) -> None:
        votes = unpack(message, self.numel, 1)
        self.ayes += votes
        if self.workers % 2 == 0 and worker == self.steps % self.workers:
            self.ayes += votes

    def answer(self) -> bytes:
        message = pack(self.ayes > self.workers // 2, 1)  # of n votes, or of n + 1: odd either way
        self.ayes[:] = 0
        return message

    def direction(self, answer: bytes) -> Tensor:
        return unpack_signs(answer, self.numel)
