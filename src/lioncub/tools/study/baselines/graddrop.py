"""GradDrop: Aji and Heafield, arXiv 1704.05021."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lioncub.tools.study.baselines.exchange import HeavyBall
from lioncub.tools.study.baselines.sparse import SparseSum, decode, encode, largest, num_kept


class GradDrop(SparseSum):
    """r_i ← r_i + g_i; the largest 4% of |r_i| are sent and leave r_i. Momentum SGD on the mean of what was sent.

    One threshold for the whole model. About 1.6 bits up: 4% times a float32 and a byte that says where.
    """

    def __init__(
        self,
        params: Sequence[Tensor],
        workers: int,
        *,
        weight_decay: float,
        seed: int = 0,
        density: float = 0.04,
        momentum: float = 0.9,
    ) -> None:
        super().__init__(params, workers, weight_decay=weight_decay, seed=seed)
        self.count = num_kept(self.numel, density)
        self.rule = HeavyBall(self.numel, momentum)
        self.residuals = self.private()

    def encode(self, worker: int, gradient: Tensor) -> bytes:
        residual = self.residuals[worker].add_(gradient)
        kept = torch.from_numpy(largest(residual, self.count))
        sent = torch.zeros(self.numel)
        sent[kept] = residual[kept]
        residual[kept] = 0
        return encode(sent)

    def direction(self, answer: bytes) -> Tensor:
        return self.rule(decode(answer, self.numel).div_(self.workers))
