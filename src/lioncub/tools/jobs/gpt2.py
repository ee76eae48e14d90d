"""A byte-level GPT as GPT-2 and nanoGPT have it: learned positions, normal weights, a tied head."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from lioncub.tools.jobs.blocks import Block
from lioncub.tools.jobs.gpt import NUM_BYTES

STD = 0.02
"""The deviation of all weights at the start, except those of the residual projections."""


class GPT2(nn.Module):
    """Maps bytes `[batch, length]` to logits of the next byte `[batch, length, 256]`.

    Weights come from a normal distribution of deviation 0.02, those of the projections that add to the residual
    stream of `0.02 / sqrt(2 * layers)`; biases are zero. The embedding is the head's weight as well.
    """

    def __init__(self, *, width: int, layers: int, heads: int, context: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(NUM_BYTES, width)
        self.positions = nn.Parameter(torch.empty(context, width))
        self.blocks = nn.ModuleList(Block(width, heads, causal=True, bias=True) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.positions, std=STD)
        self.apply(initialise_)
        for name, weight in self.named_parameters():
            if name.endswith(("attention_out.weight", "mlp_out.weight")):
                nn.init.normal_(weight, std=STD / math.sqrt(2 * layers))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.embedding(x) + self.positions[: x.shape[1]]
        for block in self.blocks:
            hidden = block(hidden)
        return functional.linear(self.norm(hidden), self.embedding.weight)


def initialise_(module: nn.Module) -> None:
    """The weights of a linear layer or an embedding from the normal distribution, its biases zero."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=STD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
