"""A parameter with its settings and state, and a note of the gradient that was sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lioncub import kernels


@dataclass(frozen=True, eq=False)
class Slot:
    """A parameter, its group's settings, and its state."""

    param: Tensor
    group: dict[str, Any]
    state: dict[str, Any]
    name: str
    number: int
    """Its place among all parameters of the optimizer."""
    spares: dict[Tensor, Tensor]
    """Second momenta by parameter, where the optimizer keeps them: encoding writes the next momentum there."""

    @property
    def momentum(self) -> Tensor:
        momentum: Tensor = self.state["exp_avg"]
        return momentum

    @property
    def spare(self) -> Tensor | None:
        return self.spares.get(self.param)

    def swap_(self) -> None:
        """The spare becomes the momentum."""
        self.state["exp_avg"], self.spares[self.param] = self.spares[self.param], self.state["exp_avg"]

    @property
    def gradient(self) -> Tensor | None:
        """As backward left it; ``group["maximize"]`` says whether to climb it."""
        return self.param.grad


@dataclass(frozen=True)
class SentGradient:
    """A note of a gradient when it was sent: which tensor, which version of it, and a sample of its bits."""

    slot: Slot
    grad: Tensor | None
    version: int
    crc: int | None
    """Of a sample of the content, where it was taken: of gradients on the CPU that leave while backward goes on."""

    @classmethod
    def of(cls, slot: Slot, *, with_content: bool) -> SentGradient:
        grad = slot.param.grad
        readable = with_content and grad is not None and grad.layout == torch.strided and grad.device.type == "cpu"
        crc = kernels.sample(grad) if readable and grad is not None else None
        return cls(slot, grad, 0 if grad is None else grad._version, crc)

    def looks_the_same(self) -> bool:
        """The same tensor, with the same version counter: all of torch's in-place operations count there."""
        grad = self.slot.param.grad
        return grad is self.grad and (grad is None or grad._version == self.version)

    def is_the_same(self) -> bool:
        """The same bits as well, where a sample was taken: writes through ``.data`` count nowhere."""
        same = self.crc is None or self.grad is None or kernels.sample(self.grad) == self.crc
        return self.looks_the_same() and same
