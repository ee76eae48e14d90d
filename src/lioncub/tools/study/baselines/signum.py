"""D-SIGNUM: Bernstein et al., arXiv 1802.04434, as the baseline of Distributed Lion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from lioncub.errors import ConfigError
from lioncub.tools.study.baselines.exchange import Exchange
from lioncub.tools.study.baselines.packing import pack, pack_signs, unpack, unpack_signs


class Signum(Exchange):
    """m_i ← β·m_i + (1-β)·g_i on every worker, which sends δ_i = sign(m_i), 1 bit; x ← (1 - lr·wd)·x - lr·Δ.

    ``combine="vote"``: Δ = sign(Σ δ_i), 1 bit down. Among an even number of workers number t mod n votes twice.
    ``combine="mean"``: Δ = (1/n) Σ δ_i, the number of + votes down in ⌈log2(n+1)⌉ bits.
    """

    def __init__(
        self,
        params: Sequence[Tensor],
        workers: int,
        *,
        weight_decay: float,
        seed: int = 0,
        combine: Literal["vote", "mean"] = "vote",
        beta: float = 0.99,
    ) -> None:
        super().__init__(params, workers, weight_decay=weight_decay, seed=seed)
        if combine not in ("vote", "mean"):
            raise ConfigError(f'Signum(combine={combine!r}): choose "vote" or "mean"')
        self.combine = combine
        self.beta = beta
        self.m = self.private()
        self.ayes = np.zeros(self.numel, np.int32)

    def encode(self, worker: int, gradient: Tensor) -> bytes:
        self.m[worker].mul_(self.beta).add_(gradient, alpha=1 - self.beta)
        return pack_signs(self.m[worker], self.steps)

    def receive(self, worker: int, message: bytes) -> None:
        votes = unpack(message, self.numel, 1)
        self.ayes += votes
        if self.combine == "vote" and self.workers % 2 == 0 and worker == self.steps % self.workers:
            self.ayes += votes

    def answer(self) -> bytes:
        if self.combine == "vote":
            message = pack(self.ayes > self.workers // 2, 1)  # of n votes, or of n + 1: odd either way
        else:
            message = pack(self.ayes, self.workers.bit_length())
        self.ayes[:] = 0
        return message

    def direction(self, answer: bytes) -> Tensor:
        if self.combine == "vote":
            return unpack_signs(answer, self.numel)
        ayes = torch.from_numpy(unpack(answer, self.numel, self.workers.bit_length()))
        return ayes.float().mul_(2).sub_(self.workers).div_(self.workers)
