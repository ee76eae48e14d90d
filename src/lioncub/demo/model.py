"""A compact byte-level GPT: pre-norm blocks, causal attention with rotary positions."""

import torch
from torch import Tensor, nn
from torch.nn import functional

NUM_BYTES = 256


class Block(nn.Module):
    """`x + attention(norm(x))`, then `x + mlp(norm(x))`."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.attention_out = nn.Linear(width, width, bias=False)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp_in = nn.Linear(width, 4 * width, bias=False)
        self.mlp_out = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor, rotation: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), rotation)
        hidden = functional.gelu(self.mlp_in(self.mlp_norm(x)), approximate="tanh")
        out: Tensor = x + self.mlp_out(hidden)
        return out

    def attention(self, x: Tensor, rotation: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.query_key_value(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(
            rotate(query, rotation), rotate(key, rotation), value, is_causal=True
        )
        out: Tensor = self.attention_out(mixed.transpose(1, 2).reshape(batch, length, width))
        return out


class ByteGPT(nn.Module):
    """Maps bytes `[batch, length]` to logits of the next byte `[batch, length, 256]`."""

    rotation: Tensor

    def __init__(self, *, width: int, layers: int, heads: int, context: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(NUM_BYTES, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, NUM_BYTES, bias=False)
        self.register_buffer("rotation", rotation_angles(context, width // heads), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.embedding(x)
        for block in self.blocks:
            hidden = block(hidden, self.rotation[:, : x.shape[1]])
        logits: Tensor = self.head(self.norm(hidden))
        return logits


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


def next_byte_loss(model: ByteGPT, windows: Tensor) -> Tensor:
    """Mean cross-entropy in nats over `[batch, length + 1]` bytes, each predicted from those before it."""
    logits = model(windows[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
