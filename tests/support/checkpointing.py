"""A small job with everything that a checkpoint must hold: dropout, BatchNorm, shuffled data, a schedule."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lioncub import DistributedLion, MomentumSync, checkpoint

ROWS = torch.randn(64, 6, generator=torch.Generator().manual_seed(1))


class Job:
    """One worker's training: the model, the optimizer, the random states and ``order`` decide the next step."""

    def __init__(self, rank: int = 0, group: Any = None, make: Any = DistributedLion, **options: Any) -> None:
        torch.manual_seed(3)
        self.model = nn.Sequential(
            nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 2), nn.Linear(2, 1)
        )
        if make is DistributedLion:
            options = {"momentum_sync": MomentumSync(every=4, budget=8.0), "process_group": group, **options}
        self.optimizer: Any = make(self.model.named_parameters(), lr=0.01, weight_decay=0.1, **options)
        self.order: list[int] = []
        self.losses: list[float] = []
        torch.manual_seed(100 + rank)
        random.seed(200 + rank)
        np.random.seed(300 + rank)

    def train(self, steps: int) -> None:
        for _ in range(steps):
            if len(self.order) < 8:
                self.order = torch.randperm(64).tolist()
            rows, self.order = ROWS[self.order[:8]], self.order[8:]
            rows = rows + random.gauss(0, 0.1) + float(np.random.randn())
            self.optimizer.zero_grad()
            loss = self.model(rows).square().mean()
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.item())
            for group in self.optimizer.param_groups:
                group["lr"] *= 0.9

    def save(self, folder: Path, step: int, **options: Any) -> checkpoint.Saving:
        return checkpoint.save(folder, self.model, self.optimizer, step, {"order": self.order}, **options)

    def load(self, folder: Path, **options: Any) -> checkpoint.Loaded:
        loaded = checkpoint.load(folder, self.model, self.optimizer, **options)
        self.order = loaded.extra["order"]
        return loaded

    def learned(self) -> dict[str, Tensor]:
        """The state of the model and the optimizer."""
        tensors = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
        for name, param in self.model.named_parameters():
            for key, value in self.optimizer.state[param].items():
                tensors[f"{name}.{key}"] = torch.as_tensor(value).clone()
        for number, group in enumerate(self.optimizer.param_groups):
            tensors |= {f"{number}.{key}": torch.tensor(float(group[key])) for key in ("lr", "step", "weight_decay")}
        return tensors

    def everything(self) -> dict[str, Tensor]:
        """All that training depends on."""
        tensors = self.learned()
        tensors["torch"] = torch.get_rng_state()
        tensors["python"] = torch.tensor(random.getstate()[1])
        of_numpy: Any = np.random.get_state()
        tensors["numpy"] = torch.tensor(of_numpy[1].astype(np.int64))
        tensors["order"] = torch.tensor(self.order)
        return tensors


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Whether two jobs are in the same state, bit for bit."""
    assert a.keys() == b.keys(), set(a) ^ set(b)
    return all(torch.equal(a[name], b[name]) for name in a)


def listing(folder: Path) -> list[str]:
    """What is in a run's folder besides the record of its owner."""
    return sorted(name for name in os.listdir(folder) if name != ".owner")
