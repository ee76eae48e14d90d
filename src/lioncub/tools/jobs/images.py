"""Image classification."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional

from lioncub.errors import ConfigError
from lioncub.tools.data.images import Images
from lioncub.tools.jobs.job import Job, evenly_spaced

MEAN, STD = (125.3, 123.0, 113.9), (63.0, 62.1, 66.7)
"""The mean and deviation of CIFAR-10's training pixels, by channel."""

MARGIN = 4
"""Pixels by which a training image is shifted at most."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageJob(Job):
    """Examples are images. Training images are shifted and mirrored at random; CIFAR-10's test set validates."""

    unit = "nats per image"
    examples_unit = "images"

    images: Images

    def batch(self, generator: torch.Generator, examples: int) -> tuple[Tensor, Tensor]:
        self.check(examples)
        chosen = torch.randint(len(self.images.train_x), (examples,), generator=generator)
        return normalise(augment(self.images.train_x[chosen], generator)), self.images.train_y[chosen]

    def mixed_batch(self, generator: torch.Generator, examples: int, shares: Tensor) -> tuple[Tensor, Tensor]:
        """A batch whose classes come in these shares."""
        self.check(examples)
        classes = torch.multinomial(shares, examples, replacement=True, generator=generator)
        places = torch.rand(examples, generator=generator)
        members = [self.of_class[int(each)] for each in classes]
        chosen = torch.stack([own[int(place * len(own))] for own, place in zip(members, places, strict=True)])
        return normalise(augment(self.images.train_x[chosen], generator)), self.images.train_y[chosen]

    @cached_property
    def of_class(self) -> list[Tensor]:
        """The training images of every class."""
        return [torch.nonzero(self.images.train_y == each).view(-1) for each in range(self.num_classes)]

    @property
    def num_classes(self) -> int:
        return int(self.images.train_y.max()) + 1

    def validation(self, examples: int, *, batch: int | None = None, final: bool = False) -> tuple[Tensor, Tensor]:
        available = len(self.images.test_x)
        if not 1 <= examples <= available:
            raise ConfigError(f"{self.name} has {available:,} images to validate, got {examples}")
        chosen = evenly_spaced(0, available - 1, examples)
        return normalise(self.images.test_x[chosen]), self.images.test_y[chosen]

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(model(inputs), targets)


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image cut at a random place out of a black margin, and mirrored or not."""
    count, channels, height, width = images.shape
    down, right = torch.randint(2 * MARGIN + 1, (2, count, 1), generator=generator)
    mirrored = torch.randint(2, (count, 1), generator=generator).bool()
    rows = down + torch.arange(height)
    columns = right + torch.where(mirrored, torch.arange(width - 1, -1, -1), torch.arange(width))
    image, channel = torch.arange(count).view(-1, 1, 1, 1), torch.arange(channels).view(1, -1, 1, 1)
    padded = functional.pad(images, (MARGIN,) * 4)
    return padded[image, channel, rows[:, None, :, None], columns[:, None, None, :]]


def normalise(images: Tensor) -> Tensor:
    """float32, of mean 0 and deviation 1 by channel."""
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN, STD))
    return (images - mean) / std
