"""Ideas for a better vote at the same bits: what a worker could speak about instead of its update vector."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lioncub.kernels import Part
from lioncub.kernels.torch_ops import blend_
from lioncub.study.lions import VirtualLion


class FeedbackLion(VirtualLion):
    """Error feedback on the worker: what a sign leaves out is added to the next update vector.

    A sign stands for as much as the mean magnitude of what it was taken of, tensor by tensor, as in EF-signSGD.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.errors = [[torch.zeros(param.numel()) for param in self.params] for _ in range(self.workers)]

    def part(self, worker: int, index: int, m: Tensor, g: Tensor) -> Part:
        error = self.errors[worker][index]
        wanted = blend_(m.to(torch.float32, copy=True), g, self.betas[0], 1 - self.betas[0]) + error
        torch.sub(wanted, wanted.sign() * wanted.abs().mean(), out=error)
        return Part(wanted)


class DitheredLion(VirtualLion):
    """Stochastic signs: noise of the update vector's mean magnitude is added, so that a close call goes either way.

    The expected sign then grows with the update vector, up to where the noise cannot turn it; the sum of many workers'
    signs tells more of the mean than the sum of their certain signs does. What is zero stays zero.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.generator = torch.Generator().manual_seed(self.seed)

    def part(self, worker: int, index: int, m: Tensor, g: Tensor) -> Part:
        wanted = blend_(m.to(torch.float32, copy=True), g, self.betas[0], 1 - self.betas[0])
        noise = torch.empty_like(wanted).uniform_(-1, 1, generator=self.generator)
        return Part(wanted + noise * wanted.abs().mean() * (wanted != 0))
