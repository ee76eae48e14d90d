"""TernGrad: Wen et al., arXiv 1705.07878."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lioncub.tools.study.baselines.exchange import Flat, HeavyBall
from lioncub.tools.study.baselines.packing import (
    pack,
    pack_floats,
    pack_trits,
    trit_bytes,
    unpack,
    unpack_floats,
    unpack_trits,
)


class TernGrad(Flat):
    """Gradients as -s, 0 or s, by chance, so that the mean is right; momentum SGD on the mean of the workers.

    Tensor by tensor, in two rounds:

    1. Entries beyond 2.5σ are cut to it. s_i = max|g_i| goes up, s = max s_i comes back: 4 bytes a tensor each way.
    2. sign(g_i)·b with P(b = 1) = |g_i|/s goes up, 1.6 bits; the sum over workers comes back, ⌈log2(2n+1)⌉ bits.

    Every worker has its gradient until s is known. σ is taken about zero, where the paper has gradients centred: about
    its mean it would cut a tensor of equal entries, or of one, to nothing.
    """

    def __init__(self, *arguments: Any, momentum: float = 0.9, clip_sigmas: float = 2.5, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.rule = HeavyBall(self.numel, momentum)
        self.clip_sigmas = clip_sigmas
        self.held: list[Tensor | None] = [None] * self.workers
        self.scales = torch.zeros(len(self.params))
        self.sum_bits = (2 * self.workers).bit_length()

    def send(self, worker: int, gradients: Sequence[Tensor]) -> int:
        gradient = self.flat(gradients)
        for part in gradient.split(self.sizes):
            limit = self.clip_sigmas * float(part.square().mean().sqrt())
            part.clamp_(-limit, limit)
        self.held[worker] = gradient
        message = pack_floats(torch.stack([part.abs().amax() for part in gradient.split(self.sizes)]))
        torch.maximum(self.scales, unpack_floats(message), out=self.scales)
        return len(message) + trit_bytes(self.numel)  # the trits follow when the scale is known

    def move(self, lr: float) -> int:
        first = pack_floats(self.scales)
        scales = unpack_floats(first)
        total = np.zeros(self.numel, np.int32)
        for worker in range(self.workers):
            message = pack_trits(self._ternarised(worker, scales).numpy())
            assert len(message) == trit_bytes(self.numel)
            total += unpack_trits(message, self.numel)
        second = pack(total + self.workers, self.sum_bits)
        mean = torch.from_numpy(unpack(second, self.numel, self.sum_bits) - self.workers).float().div_(self.workers)
        for part, scale in zip(mean.split(self.sizes), scales, strict=True):
            part.mul_(scale)
        self.displace(self.rule(mean) * lr, lr)
        self.scales.zero_()
        return len(first) + len(second)

    def _ternarised(self, worker: int, scales: Tensor) -> Tensor:
        gradient, self.held[worker] = self.held[worker], None
        assert gradient is not None, f"worker {worker} has not sent"
        chances = torch.rand(self.numel, generator=self.generator(worker))
        for part, scale in zip(chances.split(self.sizes), scales, strict=True):
            part.mul_(scale)
        return gradient.sign().to(torch.int8).mul_(chances < gradient.abs())
