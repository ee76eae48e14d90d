"""A compact byte-level GPT: pre-norm blocks, causal attention with rotary positions."""

from __future__ import annotations

from torch import Tensor, nn

from lioncub.tools.jobs.blocks import Block, rotation_angles

NUM_BYTES = 256


class ByteGPT(nn.Module):
    """Maps bytes `[batch, length]` to logits of the next byte `[batch, length, 256]`."""

    rotation: Tensor

    def __init__(self, *, width: int, layers: int, heads: int, context: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(NUM_BYTES, width)
        self.blocks = nn.ModuleList(Block(width, heads, causal=True) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, NUM_BYTES, bias=False)
        self.register_buffer("rotation", rotation_angles(context, width // heads), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.embedding(x)
        for block in self.blocks:
            hidden = block(hidden, self.rotation[:, : x.shape[1]])
        logits: Tensor = self.head(self.norm(hidden))
        return logits
