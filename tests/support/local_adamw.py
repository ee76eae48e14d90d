"""What papers say of workers that step by themselves: torch's AdamW on weights of every worker's own."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from tests.support.method_steps import flat, normal

BETAS = (0.8, 0.9)
DECAY = 0.3


class Workers:
    """n copies of the parameters, and torch's AdamW for each."""

    def __init__(self, params: list[Tensor], workers: int) -> None:
        self.y = [copy.deepcopy(params) for _ in range(workers)]
        self.optimizers = [torch.optim.AdamW(y, betas=BETAS, weight_decay=DECAY) for y in self.y]

    def step(self, gradients: list[list[Tensor]], lr: float) -> None:
        for y, optimizer, own in zip(self.y, self.optimizers, gradients, strict=True):
            optimizer.param_groups[0]["lr"] = lr
            for weight, gradient in zip(y, own, strict=True):
                weight.grad = gradient
            optimizer.step()

    def flat(self) -> Tensor:
        return torch.stack([flat(y) for y in self.y])

    def start_from(self, x: Tensor) -> None:
        for y in self.y:
            for weight, part in zip(y, x.split([weight.numel() for weight in y]), strict=True):
                weight.copy_(part.view_as(weight))


def gradients_at(t: int, workers: int) -> list[list[Tensor]]:
    return [normal(100 * t + worker) for worker in range(workers)]


def rate(t: int) -> float:
    return 0.1 / (t + 1)
