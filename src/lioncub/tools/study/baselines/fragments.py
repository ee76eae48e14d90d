"""A model's tensors in fragments of whole layers, each exchanged at a time of its own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lioncub.errors import ConfigError
from lioncub.tools.study.baselines.diloco import Nesterov
from lioncub.tools.study.baselines.formats import Precision, format_of


class Fragment:
    """Tensors that are exchanged together: the sum of what workers sent, and the outer optimizer.

    ``tensors`` are views of the shared snapshot x_p; ``own`` are each worker's y_p, views as well. What workers send
    of x_p - y_p is summed in float32, in rank order; the mean comes back, ``None`` while nothing is in flight.
    """

    def __init__(
        self,
        tensors: Sequence[Tensor],
        own: Sequence[Sequence[Tensor]],
        *,
        phase: int,
        outer: tuple[float, float],
        up: Precision,
        down: Precision,
    ) -> None:
        self.tensors, self.own, self.phase = tensors, own, phase
        self.sizes = [tensor.numel() for tensor in tensors]
        self.up, self.down = format_of(up, self.sizes), format_of(down, self.sizes)
        self.total = torch.zeros(sum(self.sizes))
        self.nesterov = Nesterov(sum(self.sizes), *outer)
        self.answer: bytes | None = None
        self.arrival = 0

    def difference(self, worker: int) -> Tensor:
        """x_p - y_p, as a vector."""
        pairs = zip(self.tensors, self.own[worker], strict=True)
        return torch.cat([(x - y).reshape(-1) for x, y in pairs])

    def send(self, difference: Tensor) -> int:
        """One worker's message is summed. Its bytes."""
        message = self.up.encode(difference)
        self.total += self.up.decode(message)
        return len(message)

    def leave(self, arrival: int) -> None:
        """All have sent: the mean comes back in step ``arrival``."""
        self.answer = self.down.encode(self.total.div_(len(self.own)))
        self.arrival = arrival
        self.total.zero_()

    def arrive(self, alpha: float) -> int:
        """x_p takes the outer step, then y_p ← α·y_p + (1-α)·x_p on every worker. The bytes that came back."""
        assert self.answer is not None
        answer, self.answer = self.answer, None
        moved = self.nesterov(self.down.decode(answer)).split(self.sizes)
        for index, (x, part) in enumerate(zip(self.tensors, moved, strict=True)):
            x.sub_(part.view_as(x))
            for own in self.own:
                own[index].mul_(alpha).add_(x * (1 - alpha))
        return len(answer)


def strided(names: Sequence[str], layers_per_fragment: int) -> list[list[int]]:
    """Which tensors make up each fragment: of L layers in P fragments, p has the layers p, p + P, p + 2P, …

    A tensor's layer is the first number in its name. Those without a number make up two more layers: one ahead of
    the others (embeddings, a stem), one behind them (the last norm, the head).
    """
    if layers_per_fragment < 1:
        raise ConfigError(f"layers_per_fragment={layers_per_fragment}: a fragment has 1 layer or more")
    layers: dict[int, list[int]] = {}
    for index, layer in enumerate(layers_of(names)):
        layers.setdefault(layer, []).append(index)
    in_order = [layers[layer] for layer in sorted(layers)]
    count = -(-len(in_order) // layers_per_fragment)
    return [[index for layer in in_order[first::count] for index in layer] for first in range(count)]


def layers_of(names: Sequence[str]) -> list[int]:
    """The number of each tensor's layer; -1 ahead of all that are numbered, the largest and 1 behind them."""
    numbers = [next((int(part) for part in name.split(".") if part.isdecimal()), None) for name in names]
    behind = max((number for number in numbers if number is not None), default=-1) + 1
    seen, layers = False, []
    for number in numbers:
        seen = seen or number is not None
        layers.append(number if number is not None else behind if seen else -1)
    return layers
