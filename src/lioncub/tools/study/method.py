"""What a method of distributed training is to the study."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor


class Method(ABC):
    """How ``workers`` workers that share ``params`` turn their gradients into a step.

    Workers that drift apart between exchanges have :attr:`weights` of their own, where their gradients are taken;
    ``params`` are then what all agreed on last, and what is judged on held-out data. Such workers exchange in a run's
    last step, whatever their period, so that nothing they learned is left out of the judgement.

    Workers are told their gradients one after another, in rank order, so that one gradient is in memory at a time;
    a method keeps what each worker would keep, and no more. What a worker says goes through real bytes: it is encoded,
    the bytes are counted, and the others know of it only what can be decoded from them. ``params`` change in place.
    """

    def __init__(self, params: Sequence[Tensor], workers: int, *, weight_decay: float, seed: int = 0) -> None:
        self.params = [param.detach() for param in params]
        self.workers = workers
        self.weight_decay = weight_decay
        self.seed = seed
        self.numel = sum(param.numel() for param in self.params)
        self.steps = 0
        self.lr = 0.0
        self.last = False
        self.weights: Sequence[Sequence[Tensor]] | None = None
        """Each worker's weights, shaped as the parameters and changed in place; None: all have ``params``."""

    def begin(self, lr: float, *, last: bool = False) -> None:
        """Before a step: its learning rate, and whether it is the run's last."""
        self.lr, self.last = lr, last

    @abstractmethod
    def send(self, worker: int, gradients: Sequence[Tensor]) -> int:
        """Take one worker's gradients, shaped as the parameters. The bytes that it sends."""

    @abstractmethod
    def move(self, lr: float) -> int:
        """All workers have sent: move the parameters. The bytes that come back to each worker."""

    def decay(self, lr: float) -> None:
        """Decoupled weight decay."""
        for param in self.params:
            param.mul_(1 - lr * self.weight_decay)
