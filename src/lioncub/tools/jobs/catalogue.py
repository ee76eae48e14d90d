"""The jobs by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from torch import nn

from lioncub.errors import ConfigError
from lioncub.tools.data.load import load_images, load_text
from lioncub.tools.jobs.gpt import ByteGPT
from lioncub.tools.jobs.gpt2 import GPT2
from lioncub.tools.jobs.images import ImageJob
from lioncub.tools.jobs.job import Job
from lioncub.tools.jobs.llama import Llama
from lioncub.tools.jobs.pretraining import Pretraining, fingerprint, pretrained
from lioncub.tools.jobs.resnet import ResNet
from lioncub.tools.jobs.text import CONTEXT, TextJob
from lioncub.tools.jobs.vit import ViT


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A job without its data."""

    kind: Literal["text", "images"]
    build: Callable[[], nn.Module]
    lr: float
    adamw_lr: float
    weight_decay: float = 0.1
    text: str = "auto"
    """The default text, by its name for :func:`load_text`."""
    pretraining: Pretraining | None = None
    """The pretraining, whose weights are kept in the cache."""


def _text(model: Callable[..., nn.Module], lr: float, adamw_lr: float, text: str = "auto", **sizes: int) -> Recipe:
    build = partial(model, context=CONTEXT, **sizes)
    return Recipe(kind="text", build=build, lr=lr, adamw_lr=adamw_lr, text=text)


def _images(model: Callable[..., nn.Module], lr: float, adamw_lr: float, **sizes: int) -> Recipe:
    return Recipe(kind="images", build=partial(model, **sizes), lr=lr, adamw_lr=adamw_lr)


JOBS = {
    "gpt-230k": _text(ByteGPT, 1e-3, 3e-3, width=64, layers=4, heads=4),
    "gpt-230k-finetune": replace(
        _text(ByteGPT, 3e-4, 1e-3, width=64, layers=4, heads=4),
        text="stdlib",
        pretraining=Pretraining(job="gpt-230k"),
    ),
    "gpt-normal-480k": _text(GPT2, 3e-4, 3e-3, text="stdlib", width=96, layers=4, heads=4),
    "llama-400k": _text(Llama, 3e-4, 3e-3, text="stdlib", width=96, mlp_width=256, layers=3, heads=4),
    "vit-200k": _images(ViT, 1e-3, 3e-3, width=64, layers=4, heads=4),
    "resnet-170k": _images(ResNet, 1e-3, 3e-3, width=12, blocks=1, stride=2),
    "gpt-1m": _text(ByteGPT, 1e-3, 3e-3, width=128, layers=5, heads=4),
    "gpt-10m": _text(ByteGPT, 3e-4, 1e-3, width=320, layers=8, heads=5),
    "gpt-50m": _text(ByteGPT, 1e-4, 5e-4, width=768, layers=7, heads=12),
    "vit-1m": _images(ViT, 3e-4, 1e-3, width=128, layers=5, heads=4),
    "vit-10m": _images(ViT, 1e-4, 5e-4, width=320, layers=8, heads=5),
    "vit-19m": _images(ViT, 1e-4, 5e-4, width=512, layers=6, heads=8),
    "resnet-1m": _images(ResNet, 3e-4, 3e-3, width=28, blocks=1, stride=1),
    "resnet-10m": _images(ResNet, 1e-4, 1e-3, width=60, blocks=2, stride=2),
    "resnet-11m": _images(ResNet, 3e-4, 1e-3, width=64, blocks=2, stride=1),
}
"""Sizes in parameters, within a tenth."""


def load_job(name: str, *, text: str = "auto", folder: Path | None = None, cache: Path | None = None) -> Job:
    """The job and its data, from ``folder`` or the cache.

    ``text`` chooses what a model of text learns (`load_text`); "auto": the job's own text, where it has one.
    """
    if name not in JOBS:
        raise ConfigError(f"there is no job {name!r}: choose from {', '.join(JOBS)}")
    recipe = JOBS[name]
    settings: dict[str, Any] = {"lr": recipe.lr, "adamw_lr": recipe.adamw_lr, "weight_decay": recipe.weight_decay}
    if recipe.kind == "text":
        words = load_text(recipe.text if text == "auto" else text, folder=folder, cache=cache)
        settings |= {"data": words.name, "data_version": words.version}
        if how := recipe.pretraining:
            load = partial(load_job, how.job, text=how.text, folder=folder, cache=cache)
            weights = pretrained(how, recipe.build, load, cache)
            about = f"after {how.text}, weights {fingerprint(weights)}"
            settings |= {"weights": weights, "data_version": "; ".join(filter(None, (words.version, about)))}
        return TextJob(name=name, build=recipe.build, text=words, **settings)
    images = load_images(folder=folder, cache=cache)
    return ImageJob(name=name, data=images.name, build=recipe.build, images=images, **settings)
