"""Ideas for better learning at the same bits: what a worker could speak about instead of its update vector."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lioncub.kernels import Part
from lioncub.kernels.torch_ops import blend_
from lioncub.tools.study.kinds import kind
from lioncub.tools.study.lions import VirtualLion


class FeedbackLion(VirtualLion):
    """Error feedback on the worker: what a sign leaves out is added to the next update vector.

    A sign stands for as much as the mean magnitude of what it was taken of, tensor by tensor, as in EF-signSGD.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.errors = private(self)

    def part(self, worker: int, index: int, m: Tensor, g: Tensor) -> Part:
        error = self.errors[worker][index]
        wanted = update_of(self, m, g) + error
        torch.sub(wanted, wanted.sign() * wanted.abs().mean(), out=error)
        return Part(wanted)


class CertainLion(VirtualLion):
    """Votes weighted by certainty: a worker's update divided by the root of its own second moment, as AdamW divides."""

    beta, eps = 0.99, 1e-12

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.squares = private(self)

    def part(self, worker: int, index: int, m: Tensor, g: Tensor) -> Part:
        v = self.squares[worker][index].mul_(self.beta).addcmul_(g, g, value=1 - self.beta)
        v_hat = v / (1 - self.beta ** (self.steps + 1))
        return Part(update_of(self, m, g) / (v_hat.sqrt_() + self.eps))


class CautiousLion(VirtualLion):
    """A cautious mask, arXiv 2411.16085, on the worker: where update and gradient disagree it says as little as it can.

    On a grid without zero that is the least level.
    """

    def part(self, worker: int, index: int, m: Tensor, g: Tensor) -> Part:
        u = update_of(self, m, g)
        return Part(u * (u * g > 0))


class OrthogonalLion(VirtualLion):
    """Muon's step before the vote: a hidden matrix's update by the nearest one with orthogonal rows or columns."""

    rounds = 5

    def part(self, worker: int, index: int, m: Tensor, g: Tensor) -> Part:
        shape = self.params[index].shape
        if len(shape) < 2 or kind(self.names[index]) in ("embedding", "head"):
            return super().part(worker, index, m, g)
        return Part(orthogonal(update_of(self, m, g).view(shape[0], -1), self.rounds).reshape(-1))


class FanInLion(VirtualLion):
    """Rates by layer: in inverse proportion to the inputs of a neuron, the geometric mean over matrices kept at lr."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        inputs = {
            index: param[0].numel()
            for index, param in enumerate(self.params)
            if param.dim() > 1 and kind(self.names[index]) not in ("embedding", "head")
        }
        usual = torch.tensor([float(count) for count in inputs.values()]).log().mean().exp().item()
        for index, count in inputs.items():
            self.rates[index] = usual / count


def orthogonal(u: Tensor, rounds: int) -> Tensor:
    """Newton and Schulz' iteration towards U·Vᵀ of the singular value decomposition, with Muon's coefficients."""
    a, b, c = 3.4445, -4.7750, 2.0315
    if len(u) > u.shape[1]:
        return orthogonal(u.T, rounds).T
    x: Tensor = u / (u.norm() + 1e-12)
    for _ in range(rounds):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def update_of(lion: VirtualLion, m: Tensor, g: Tensor) -> Tensor:
    """u = β1·m + (1-β1)·g."""
    return blend_(m.to(torch.float32, copy=True), g, lion.betas[0], 1 - lion.betas[0])


def private(lion: VirtualLion) -> list[list[Tensor]]:
    """A buffer for every worker and tensor."""
    return [[torch.zeros(param.numel()) for param in lion.params] for _ in range(lion.workers)]
