"""The workers' gradients, one after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from lioncub.tools.jobs.job import Job

Batch = tuple[Tensor, Tensor]


class Replica:
    """The model where gradients are computed: itself, or a copy that follows it on another device."""

    def __init__(self, source: nn.Module, device: torch.device) -> None:
        self.source = source
        self.device = device
        self.model = source if device.type == "cpu" else self.copied()

    def copied(self) -> nn.Module:
        return deepcopy(self.source).to(self.device)

    def gradients(
        self, job: Job, batches: Sequence[Batch], weights: Sequence[Sequence[Tensor]] | None = None
    ) -> Iterator[tuple[float, list[Tensor]]]:
        """Each worker's loss and gradients, on the CPU; at its own ``weights``, where workers have such."""
        there = [(inputs.to(self.device), targets.to(self.device)) for inputs, targets in batches]
        passes = one_by_one(job, self.model, there) if weights is None else apart(job, self.model, there, weights)
        for loss, gradients in passes:
            yield loss, [gradient.cpu() for gradient in gradients]

    @torch.no_grad()
    def follow(self) -> None:
        """Take over the parameters as the method has moved them."""
        if self.model is not self.source:
            for own, moved in zip(self.model.parameters(), self.source.parameters(), strict=True):
                own.copy_(moved)


def one_by_one(job: Job, model: nn.Module, batches: Sequence[Batch]) -> Iterator[tuple[float, list[Tensor]]]:
    """Each worker's loss and gradients, as a process of its own would compute them, bit for bit."""
    params = list(model.parameters())
    for inputs, targets in batches:
        loss = job.loss(model, inputs, targets)
        yield float(loss.detach()), list(torch.autograd.grad(loss, params))


def apart(
    job: Job, model: nn.Module, batches: Sequence[Batch], weights: Sequence[Sequence[Tensor]]
) -> Iterator[tuple[float, list[Tensor]]]:
    """The same, each worker at weights of its own; the model keeps its parameters."""
    names, devices = zip(*((name, param.device) for name, param in model.named_parameters()), strict=True)
    for (inputs, targets), own in zip(batches, weights, strict=True):
        params = [weight.to(device).detach().requires_grad_() for weight, device in zip(own, devices, strict=True)]
        loss = job.loss(_bound(model, dict(zip(names, params, strict=True))), inputs, targets)
        yield float(loss.detach()), list(torch.autograd.grad(loss, params))


def _bound(model: nn.Module, values: dict[str, Tensor]) -> nn.Module:
    """The model, computing with other parameters than its own."""
    return cast(nn.Module, lambda inputs: functional_call(model, values, (inputs,)))
