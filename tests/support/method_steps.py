"""Methods of the study, moved by hand: parameters and gradients of a few shapes, and one step."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lioncub.tools.study.method import Method

SHAPES = ((6, 4), (5,), (), (3, 2, 2))


def zeros(*shapes: Sequence[int]) -> list[Tensor]:
    return [torch.zeros(shape) for shape in shapes or SHAPES]


def normal(seed: int, *shapes: Sequence[int]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(tuple(shape), generator=generator) for shape in shapes or SHAPES]


def step(
    method: Method, gradients: Sequence[Sequence[Tensor]], lr: float = 1.0, *, last: bool = False
) -> tuple[list[int], int]:
    """All workers' gradients, then the move: the bytes up and down."""
    method.begin(lr, last=last)
    return [method.send(worker, gradient) for worker, gradient in enumerate(gradients)], method.move(lr)


def flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def mean_of(gradients: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    return [torch.stack(parts).mean(0) for parts in zip(*gradients, strict=True)]


def check_repeatable(make: Callable[[], Method], gradients_at: Callable[[int, int], list[list[Tensor]]]) -> None:
    """The same seed gives the same bits, and no gradient is changed."""
    ends = []
    for _ in range(2):
        method = make()
        for t in range(8):
            gradients = gradients_at(t, method.workers)
            before = copy.deepcopy(gradients)
            step(method, gradients, 0.01)
            assert all(torch.equal(flat(a), flat(b)) for a, b in zip(gradients, before, strict=True))
        ends.append(flat(method.params))
        assert method.steps == 8
    assert torch.equal(*ends)
