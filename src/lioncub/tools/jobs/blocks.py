"""A transformer's block, for text and images alike."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """`x + attention(norm(x))`, then `x + mlp(norm(x))`."""

    def __init__(self, width: int, heads: int, *, causal: bool, bias: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width, bias=bias)
        self.attention_out = nn.Linear(width, width, bias=bias)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp_in = nn.Linear(width, 4 * width, bias=bias)
        self.mlp_out = nn.Linear(4 * width, width, bias=bias)

    def forward(self, x: Tensor, rotation: Tensor | None = None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), rotation)
        hidden = functional.gelu(self.mlp_in(self.mlp_norm(x)), approximate="tanh")
        out: Tensor = x + self.mlp_out(hidden)
        return out

    def attention(self, x: Tensor, rotation: Tensor | None) -> Tensor:
        batch, length, width = x.shape
        split = self.query_key_value(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        if rotation is not None:
            query, key = rotate(query, rotation), rotate(key, rotation)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        out: Tensor = self.attention_out(mixed.transpose(1, 2).reshape(batch, length, width))
        return out


def rotation_angles(context: int, size: int) -> Tensor:
    """`[2, context, size / 2]`: cosine and sine of position times frequency, from 1 down to about 1/100."""
    frequencies = 100.0 ** -torch.linspace(0, 1, size // 2)
    angles = torch.arange(context)[:, None] * frequencies
    return torch.stack((angles.cos(), angles.sin()))


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Turn each pair of coordinates by its angle, so that products depend on distances, not places."""
    cosine, sine = rotation
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, first * sine + second * cosine), dim=-1)
