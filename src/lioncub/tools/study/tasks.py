"""What the study trains: real data, models small enough for one core."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

import torch
from torch import Tensor, nn

from lioncub.errors import ConfigError
from lioncub.tools.jobs.catalogue import JOBS, load_job
from lioncub.tools.jobs.images import ImageJob
from lioncub.tools.jobs.job import Job

Family = Literal["lion", "adamw", "sgd"]
"""Methods whose steps are of one kind share a grid of learning rates."""

MOST_AT_ONCE = 500

LRS: dict[Family, tuple[float, ...]] = {
    "lion": (3e-4, 1e-3, 3e-3, 1e-2),
    "adamw": (1e-3, 3e-3, 1e-2, 3e-2),
    "sgd": (0.03, 0.1, 0.3, 1.0),
}
WEIGHT_DECAY: dict[Family, float] = {"lion": 0.1, "adamw": 0.03, "sgd": 1e-4}


@dataclass(frozen=True, kw_only=True)
class Task:
    """A job, how much of it every worker sees in a step, and for how long."""

    name: str
    job: str
    examples: int
    steps: int
    judged_on: int
    """Held-out examples."""
    lrs: dict[Family, tuple[float, ...]] = field(default_factory=lambda: LRS)
    """The grids that are searched, as many values for each."""
    weight_decay: dict[Family, float] = field(default_factory=lambda: WEIGHT_DECAY)

    @property
    def unit(self) -> str:
        """Of the quality that is reported."""
        return "% of test images named rightly" if self.is_images else "bits per byte"

    @property
    def is_images(self) -> bool:
        return JOBS[self.job].kind == "images"

    @property
    def higher_is_better(self) -> bool:
        return self.is_images

    def load(self) -> Job:
        return _loaded(self.job)

    def schedule(self, step: int, lr: float, steps: int, rise: float = 0.05) -> float:
        """The rate rises for a part of the steps; after it, half a cosine to zero."""
        warm = max(round(rise * steps), 1)
        if step < warm:
            return lr * (step + 1) / warm
        return lr * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(steps - warm, 1)))


@cache
def _loaded(name: str) -> Job:
    return load_job(name)


@torch.no_grad()
def judged(task: Task, model: nn.Module, *, part: float = 1.0) -> tuple[float, float]:
    """The mean loss on held-out examples, in nats, and the quality in the task's unit; on a part of them."""
    job = task.load()
    inputs, targets = job.validation(round(part * task.judged_on), batch=task.examples, final=True)
    device = next(model.parameters()).device
    losses, right, count = 0.0, 0, 0
    for start in range(0, len(inputs), MOST_AT_ONCE):
        x, y = (part[start : start + MOST_AT_ONCE].to(device) for part in (inputs, targets))
        losses += float(job.loss(model, x, y)) * len(x)
        count += len(x)
        if task.is_images:
            right += int((model(x).argmax(1) == y).sum())
    loss = losses / count
    return loss, 100.0 * right / count if task.is_images else loss / math.log(2)


class Batches:
    """Every worker's own stream of examples. With ``skew``, workers see different mixes of the classes.

    ``skew`` is the concentration of the Dirichlet distribution that the mixes are drawn from: the smaller, the more
    they differ.
    """

    def __init__(self, task: Task, workers: int, seed: int, *, skew: float | None = None) -> None:
        self.job, self.examples = task.load(), task.examples
        self.generators = [torch.Generator().manual_seed((seed + 1) * 1_000_003 + worker) for worker in range(workers)]
        self.mixes: Sequence[Tensor] | None = None
        if skew is not None:
            if not isinstance(self.job, ImageJob):
                raise ConfigError(f"workers can see different classes of images only, not of {self.job.name}")
            self.mixes = dirichlet(workers, self.job.num_classes, skew, seed)

    def of(self, worker: int) -> tuple[Tensor, Tensor]:
        generator = self.generators[worker]
        if self.mixes is None:
            return self.job.batch(generator, self.examples)
        assert isinstance(self.job, ImageJob)
        return self.job.mixed_batch(generator, self.examples, self.mixes[worker])


def dirichlet(workers: int, classes: int, concentration: float, seed: int) -> list[Tensor]:
    """Each worker's share of every class."""
    if not concentration > 0:
        raise ConfigError(f"skew must be positive, got {concentration}")
    generator = torch.Generator().manual_seed(seed)
    shares = torch._standard_gamma(torch.full((workers, classes), concentration, dtype=torch.float64), generator)
    return list((shares + 1e-12) / (shares + 1e-12).sum(1, keepdim=True))


FINETUNING_LRS: dict[Family, tuple[float, ...]] = {
    "lion": (3e-5, 1e-4, 3e-4, 1e-3),
    "adamw": (1e-4, 3e-4, 1e-3, 3e-3),
    "sgd": (0.003, 0.01, 0.03, 0.1),
}

PAPERS_LRS: dict[Family, tuple[float, ...]] = {
    "lion": (3e-5, 1e-4, 3e-4),
    "adamw": (3e-4, 1e-3, 3e-3),
    "sgd": (0.03, 0.1, 0.3),
}
PAPERS_STEPS = 50_000
"""128 epochs of 4 workers with 32 images each; all numbers of workers get the same steps, as in the other presets."""

TASKS = {
    task.name: task
    for task in (
        Task(
            name="vit",
            job="vit-200k",
            examples=8,
            steps=400,
            judged_on=2_000,
        ),
        Task(
            name="resnet",
            job="resnet-170k",
            examples=8,
            steps=600,
            judged_on=2_000,
        ),
        Task(
            name="gpt",
            job="gpt-230k",
            examples=128,
            steps=700,
            judged_on=32_768,
        ),
        Task(
            name="gpt-batch",
            job="gpt-230k",
            examples=1024,
            steps=500,
            judged_on=32_768,
        ),
        Task(
            name="resnet-batch",
            job="resnet-170k",
            examples=32,
            steps=500,
            judged_on=2_000,
        ),
        Task(  # another model, and another text than the one that defaults were chosen on
            name="gpt-normal",
            job="gpt-normal-480k",
            examples=512,
            steps=500,
            judged_on=32_768,
        ),
        Task(
            name="llama",
            job="llama-400k",
            examples=512,
            steps=500,
            judged_on=32_768,
        ),
        Task(
            name="finetune",
            job="gpt-230k-finetune",
            examples=512,
            steps=300,
            judged_on=32_768,
            lrs=FINETUNING_LRS,
        ),
        Task(  # the ViT of Distributed Lion
            name="papers-vit",
            job="vit-19m",
            examples=32,
            steps=PAPERS_STEPS,
            judged_on=10_000,
            lrs=PAPERS_LRS,
            weight_decay={"lion": 0.1, "adamw": 0.01, "sgd": 5e-4},
        ),
        Task(  # the ResNet-18 of Lion Cub, with its decay; on CIFAR-10 instead of CIFAR-100
            name="papers-resnet",
            job="resnet-11m",
            examples=64,
            steps=PAPERS_STEPS,
            judged_on=10_000,
            lrs=PAPERS_LRS,
            weight_decay={"lion": 5e-4, "adamw": 5e-4, "sgd": 5e-4},
        ),
    )
}
