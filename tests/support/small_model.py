"""A little regression that learns in a hundred steps."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def make_model() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))


def loss_of(model: nn.Module, rank: int, step: int, batch: int = 16) -> Tensor:
    """Every worker its own data, one common task."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(batch, 10, generator=generator)
    target = torch.stack([x[:, 0] - x[:, 1], x[:, 2], x[:, 3] * 0.5], dim=1)
    loss: Tensor = (model(x) - target).square().mean()
    return loss


def weights(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])
