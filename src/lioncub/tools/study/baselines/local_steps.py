"""What methods share whose workers step by themselves and exchange seldom."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lioncub.errors import ConfigError
from lioncub.tools.study.baselines.exchange import AdamW, Flat
from lioncub.tools.study.baselines.formats import Precision, format_of
from lioncub.tools.study.errors import DivergedError


class OwnWeights(Flat):
    """Every worker has weights y_i of its own, and AdamW on them: y_i ← (1 - γ·wd)·y_i - γ·m̂_i / (√v̂_i + ε).

    γ is the learning rate of the step. A worker's moments stay its own, and are never reset.
    """

    def __init__(self, *arguments: Any, betas: tuple[float, float] = (0.9, 0.95), **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.y = [self.flat(self.params) for _ in range(self.workers)]
        self.weights = [self._shaped(y) for y in self.y]
        self.inner = [AdamW(self.numel, betas) for _ in range(self.workers)]

    def _shaped(self, flat: Tensor) -> list[Tensor]:
        """Views of a flat vector, shaped as the parameters."""
        return [part.view_as(param) for param, part in zip(self.params, flat.split(self.sizes), strict=True)]

    def inner_step(self, worker: int, gradients: Sequence[Tensor]) -> None:
        direction = self.inner[worker](self.flat(gradients))
        self.y[worker].mul_(1 - self.lr * self.weight_decay).sub_(direction.mul_(self.lr))

    def check_finite(self, worker: int, difference: Tensor) -> None:
        """Raise if x - y_i holds NaN or Inf."""
        if not torch.isfinite(difference).all():
            raise DivergedError(f"step {self.steps}: a weight of worker {worker} is not finite")


class LocalSteps(OwnWeights):
    """Every H = ``every`` steps, and in the run's last, workers exchange how far they came from what they share.

    worker:  sends x - y_i
    all:     x ← x - displacement(answer),   y_i ← x
    """

    def __init__(self, *arguments: Any, every: int = 32, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if every < 1:
            raise ConfigError(f"{type(self).__name__}(every={every}): an exchange after 1 step or more")
        self.every = every

    @abstractmethod
    def encode(self, worker: int, difference: Tensor) -> bytes:
        """The worker: its message about x - y_i, which is its own to change."""

    @abstractmethod
    def receive(self, worker: int, message: bytes) -> None:
        """The server: take in one message."""

    @abstractmethod
    def answer(self) -> bytes:
        """The server: what goes to every worker, once all have sent; ready for the next exchange."""

    @abstractmethod
    def displacement(self, answer: bytes) -> Tensor:
        """Every worker: how far x moves."""

    @property
    def due(self) -> bool:
        """Whether this step ends with an exchange."""
        return self.last or (self.steps + 1) % self.every == 0

    def send(self, worker: int, gradients: Sequence[Tensor]) -> int:
        self.inner_step(worker, gradients)
        if not self.due:
            return 0
        difference = self.flat(self.params).sub_(self.y[worker])
        self.check_finite(worker, difference)
        message = self.encode(worker, difference)
        self.receive(worker, message)
        return len(message)

    def move(self, lr: float) -> int:
        received = 0
        if self.due:
            answer = self.answer()
            received = len(answer)
            self.subtract(self.displacement(answer))
            for y in self.y:
                torch.cat([param.reshape(-1) for param in self.params], out=y)
        self.steps += 1
        return received


class LocalAverages(LocalSteps):
    """The mean of the workers' differences comes back; :meth:`outer` says where it leads.

    ``up`` and ``down`` are the formats of the messages. What workers send is summed in float32, in rank order.
    """

    def __init__(self, *arguments: Any, up: Precision = "float32", down: Precision = "float32", **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.up, self.down = format_of(up, self.sizes), format_of(down, self.sizes)
        self.total = torch.zeros(self.numel)

    @abstractmethod
    def outer(self, d: Tensor) -> Tensor:
        """How far x moves when the mean of x - y_i is ``d``."""

    def encode(self, worker: int, difference: Tensor) -> bytes:
        return self.up.encode(difference)

    def receive(self, worker: int, message: bytes) -> None:
        self.total += self.up.decode(message)

    def answer(self) -> bytes:
        message = self.down.encode(self.total.div_(self.workers))
        self.total.zero_()
        return message

    def displacement(self, answer: bytes) -> Tensor:
        return self.outer(self.down.decode(answer))
