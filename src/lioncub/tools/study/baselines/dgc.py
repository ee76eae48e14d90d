"""Deep Gradient Compression: Lin et al., arXiv 1712.01887."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lioncub.errors import ConfigError
from lioncub.tools.study.baselines.exchange import Exchange
from lioncub.tools.study.baselines.sparse import decode, encode, largest, num_kept

WARM_UP_RATE = 0.25  # sparsity 75%, 93.75%, 98.4%, …


class DGC(Exchange):
    """A worker's momentum is accumulated until it is large enough to send.

        g ← g_i / n, clipped to norm n^-1/2·``clip``             local gradient clipping
        u ← β·u + g,  v ← v + u                                  momentum correction
        the largest 1 - sparsity of |v|, tensor by tensor, are sent and leave v
        ... and leave u                                          momentum factor masking
        x ← (1 - lr·wd)·x - lr·(the sum of what was sent)

    In the first ``warmup_steps`` density falls exponentially: 1/4, 1/16, … as many equal stages as there are powers
    above the final density. About 1.6 bits up at sparsity 0.96: 4% times a float32 and a byte that says where.
    """

    def __init__(
        self,
        *arguments: Any,
        sparsity: float = 0.96,
        momentum: float = 0.9,
        clip: float | None = 1.0,
        factor_masking: bool = True,
        warmup_steps: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        if not 0 <= sparsity < 1:
            raise ConfigError(f"DGC(sparsity={sparsity}): at least 0, less than 1")
        self.densities = _densities(1 - sparsity)
        self.warmup_steps = warmup_steps
        self.momentum = momentum
        self.max_norm = None if clip is None else clip * self.workers**-0.5
        self.factor_masking = factor_masking
        self.u = self.private()
        self.v = self.private()
        self.total = torch.zeros(self.numel)

    @property
    def density(self) -> float:
        """The share of entries that are sent in this step."""
        if self.steps >= self.warmup_steps:
            return self.densities[-1]
        return self.densities[self.steps * (len(self.densities) - 1) // self.warmup_steps]

    def encode(self, worker: int, gradient: Tensor) -> bytes:
        gradient /= self.workers
        if self.max_norm is not None:
            gradient *= (self.max_norm / gradient.norm()).clamp_(max=1)
        u = self.u[worker].mul_(self.momentum).add_(gradient)
        v = self.v[worker].add_(u)
        kept = self._kept(v)
        sent = torch.zeros(self.numel)
        sent[kept] = v[kept]
        v[kept] = 0
        if self.factor_masking:
            u[kept] = 0
        return encode(sent)

    def receive(self, worker: int, message: bytes) -> None:
        self.total += decode(message, self.numel)

    def answer(self) -> bytes:
        """The sum of all, as sparse as their union."""
        message = encode(self.total)
        self.total.zero_()
        return message

    def direction(self, answer: bytes) -> Tensor:
        return decode(answer, self.numel)

    def _kept(self, v: Tensor) -> Tensor:
        kept, start = [], 0
        for part in v.split(self.sizes):
            kept.append(torch.from_numpy(largest(part, num_kept(len(part), self.density))) + start)
            start += len(part)
        return torch.cat(kept)


def _densities(final: float) -> list[float]:
    """Of the warm-up's stages, and the final one."""
    densities: list[float] = []
    while (density := WARM_UP_RATE ** (len(densities) + 1)) > final:
        densities.append(density)
    return [*densities, final]
