"""A small vision transformer for images of 32 x 32 pixels."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from lioncub.tools.jobs.blocks import Block

PATCH = 4
NUM_PATCHES = (32 // PATCH) ** 2


class ViT(nn.Module):
    """Maps images `[batch, 3, 32, 32]` to logits `[batch, classes]`: 64 patches, learned positions, their mean."""

    def __init__(self, *, width: int, layers: int, heads: int, classes: int = 10) -> None:
        super().__init__()
        self.embedding = nn.Linear(3 * PATCH * PATCH, width)
        self.positions = nn.Parameter(0.02 * torch.randn(NUM_PATCHES, width))
        self.blocks = nn.ModuleList(Block(width, heads, causal=False) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        patches = functional.unfold(x, PATCH, stride=PATCH).transpose(1, 2)
        hidden = self.embedding(patches) + self.positions
        for block in self.blocks:
            hidden = block(hidden)
        logits: Tensor = self.head(self.norm(hidden).mean(dim=1))
        return logits
