"""Signs with error feedback both ways: EF-signSGD, Karimireddy et al., arXiv 1901.09847, as distributed and given
momentum by Zheng et al., arXiv 1905.10936 (dist-EF-SGDM)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lioncub.tools.study.baselines.exchange import Flat
from lioncub.tools.study.baselines.packing import (
    pack_floats,
    pack_signs,
    packed_bytes,
    unpack_floats,
    unpack_signs,
)


class EFSign(Flat):
    """What compression loses is kept and added to the next message, by every worker and by the server.

        worker:  m_i ← β·m_i + g_i,   p_i = lr·(β·m_i + g_i) + e_i,   Δ_i = C(p_i),   e_i ← p_i - Δ_i
        server:  p = (1/n) Σ Δ_i + e,   Δ = C(p),   e ← p - Δ
        all:     x ← (1 - lr·wd)·x - Δ

    C(p) = sign(p)·‖p‖₁/d for each tensor: 1 bit an entry and 4 bytes a tensor, up and down. The errors are measured in
    parameters, not in gradients, which is the second paper's e·lr(t-1)/lr(t) without the division. As lr is known at
    the end of a step only, a worker has β·m_i + g_i until then.
    """

    def __init__(self, *arguments: Any, momentum: float = 0.9, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.momentum = momentum
        self.held: list[Tensor | None] = [None] * self.workers
        self.m = self.private()
        self.errors = self.private()
        self.server_error = torch.zeros(self.numel)
        self.message_bytes = packed_bytes(self.numel, 1) + 4 * len(self.params)

    def send(self, worker: int, gradients: Sequence[Tensor]) -> int:
        gradient = self.flat(gradients)
        self.m[worker].mul_(self.momentum).add_(gradient)
        self.held[worker] = gradient.add_(self.m[worker], alpha=self.momentum)
        return self.message_bytes

    def move(self, lr: float) -> int:
        total = torch.zeros(self.numel)
        for worker, error in enumerate(self.errors):
            held, self.held[worker] = self.held[worker], None
            assert held is not None, f"worker {worker} has not sent"
            error += held * lr
            total += self.decode(self._compressed_(error))
        answer = self._compressed_(self.server_error.add_(total, alpha=1 / self.workers))
        self.displace(self.decode(answer), lr)
        return len(answer)

    def _compressed_(self, p: Tensor) -> bytes:
        """C(p) as bytes; ``p`` keeps what they do not say."""
        scales = torch.stack([part.abs().mean() for part in p.split(self.sizes)])
        message = pack_floats(scales) + pack_signs(p, self.steps)
        assert len(message) == self.message_bytes
        p -= self.decode(message)
        return message

    def decode(self, message: bytes) -> Tensor:
        """What one message says."""
        signs_at = 4 * len(self.params)
        compressed = unpack_signs(message[signs_at:], self.numel)
        for part, scale in zip(compressed.split(self.sizes), unpack_floats(message[:signs_at]), strict=True):
            part.mul_(scale)
        return compressed
