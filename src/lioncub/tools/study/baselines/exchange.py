"""What the baselines have in common: one flat vector, and messages between workers and a server that are bytes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lioncub.tools.study.baselines.formats import Precision, format_of
from lioncub.tools.study.method import Method


class Flat(Method):
    """A method to which all parameters are one flat vector."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.sizes = [param.numel() for param in self.params]

    def flat(self, gradients: Sequence[Tensor]) -> Tensor:
        """A vector of its own, float32."""
        return torch.cat([gradient.detach().reshape(-1).float() for gradient in gradients])

    def private(self) -> list[Tensor]:
        """A flat buffer for every worker."""
        return [torch.zeros(self.numel) for _ in range(self.workers)]

    def generator(self, worker: int) -> torch.Generator:
        """A worker's random numbers of this step."""
        (state,) = np.random.SeedSequence((self.seed, self.steps, worker)).generate_state(1)
        return torch.Generator().manual_seed(int(state))

    def displace(self, displacement: Tensor, lr: float) -> None:
        """Weight decay, then x ← x - ``displacement``: the end of a step."""
        self.decay(lr)
        self.subtract(displacement)
        self.steps += 1

    def subtract(self, displacement: Tensor) -> None:
        """x ← x - ``displacement``."""
        for param, part in zip(self.params, displacement.split(self.sizes), strict=True):
            param.sub_(part.view_as(param))


class Exchange(Flat):
    """One message up from every worker, one answer down to all: :meth:`direction` sees nothing but the answer."""

    @abstractmethod
    def encode(self, worker: int, gradient: Tensor) -> bytes:
        """The worker: its message. The gradient is its own to change."""

    @abstractmethod
    def receive(self, worker: int, message: bytes) -> None:
        """The server: take in one message."""

    @abstractmethod
    def answer(self) -> bytes:
        """The server: what goes to every worker, once all have sent; ready for the next step."""

    @abstractmethod
    def direction(self, answer: bytes) -> Tensor:
        """Every worker: where to go, x ← x - lr·direction."""

    def send(self, worker: int, gradients: Sequence[Tensor]) -> int:
        message = self.encode(worker, self.flat(gradients))
        self.receive(worker, message)
        return len(message)

    def move(self, lr: float) -> int:
        answer = self.answer()
        self.displace(self.direction(answer) * lr, lr)
        return len(answer)


class FullPrecision(Exchange):
    """float32 gradients, summed in rank order: 32 bits up, 32 down. :meth:`rule` is given the mean.

    With ``precision="bfloat16"`` what is sent is rounded, gradients and their sum: 16 bits up, 16 down.
    """

    def __init__(self, *arguments: Any, precision: Precision = "float32", **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.format = format_of(precision, self.sizes)
        self.total = torch.zeros(self.numel)

    @abstractmethod
    def rule(self, g: Tensor) -> Tensor:
        """The direction of one worker that has gradient ``g``."""

    def encode(self, worker: int, gradient: Tensor) -> bytes:
        return self.format.encode(gradient)

    def receive(self, worker: int, message: bytes) -> None:
        self.total += self.format.decode(message)

    def answer(self) -> bytes:
        message = self.format.encode(self.total)
        self.total.zero_()
        return message

    def direction(self, answer: bytes) -> Tensor:
        return self.rule(self.format.decode(answer).div_(self.workers))


class HeavyBall:
    """Momentum SGD: m ← β·m + g, the direction is m."""

    def __init__(self, numel: int, beta: float) -> None:
        self.m = torch.zeros(numel)
        self.beta = beta

    def __call__(self, g: Tensor) -> Tensor:
        return self.m.mul_(self.beta).add_(g)


class AdamW:
    """m ← β1·m + (1-β1)·g,  v ← β2·v + (1-β2)·g²: the direction is m̂ / (√v̂ + ε)."""

    def __init__(self, numel: int, betas: tuple[float, float], eps: float = 1e-8) -> None:
        self.betas = betas
        self.eps = eps
        self.steps = 0
        self.m = torch.zeros(numel)
        self.v = torch.zeros(numel)

    def __call__(self, g: Tensor) -> Tensor:
        beta1, beta2 = self.betas
        self.steps += 1
        self.m.mul_(beta1).add_(g, alpha=1 - beta1)
        self.v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        m_hat = self.m / (1 - beta1**self.steps)
        v_hat = self.v / (1 - beta2**self.steps)
        return m_hat / (v_hat.sqrt_() + self.eps)
