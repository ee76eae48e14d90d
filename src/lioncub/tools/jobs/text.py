"""Predicting the next byte of a text."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from lioncub.errors import ConfigError
from lioncub.tools.data.text import Text
from lioncub.tools.jobs.job import Job, evenly_spaced

CONTEXT = 128
"""The most bytes that a model sees at once."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TextJob(Job):
    """Examples are tokens, and tokens are bytes. A batch below 128 of them is one short sequence."""

    unit = "nats per byte"
    examples_unit = "tokens"

    text: Text

    def check(self, examples: int) -> None:
        super().check(examples)
        if examples % context_of(examples):
            raise ConfigError(
                f"{self.name} needs at most {CONTEXT} tokens per step or a multiple of {CONTEXT}, got {examples}"
            )

    def batch(self, generator: torch.Generator, examples: int) -> tuple[Tensor, Tensor]:
        self.check(examples)
        context = context_of(examples)
        starts = torch.randint(len(self.text.train) - context, (examples // context,), generator=generator)
        return windows(self.text.train, starts, context)

    def validation(self, examples: int, *, batch: int | None = None, final: bool = False) -> tuple[Tensor, Tensor]:
        """Sequences as long as those of a ``batch``: a model cannot be asked for more than it was trained on."""
        context = context_of(examples if batch is None else batch)
        if examples < 1 or examples % context:
            raise ConfigError(f"{self.name} needs a multiple of {context} tokens to validate, got {examples}")
        held_out = self.text.test if final else self.text.validation
        return windows(held_out, evenly_spaced(0, len(held_out) - context - 1, examples // context), context)

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def context_of(examples: int) -> int:
    """The length of a batch's sequences."""
    return min(CONTEXT, examples)


def windows(data: Tensor, starts: Tensor, context: int) -> tuple[Tensor, Tensor]:
    """``[starts, context]`` bytes, and the same one further."""
    bytes_ = data[starts[:, None] + torch.arange(context + 1)].long()
    return bytes_[:, :-1].contiguous(), bytes_[:, 1:].contiguous()
