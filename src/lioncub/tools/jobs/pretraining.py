"""Weights that a job begins with: trained on another text by a fixed recipe, and kept in the cache."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from lioncub.tools.data.dataset import cache_folder
from lioncub.tools.data.errors import DataError
from lioncub.tools.jobs.job import Job
from lioncub.tools.reporting.files import write_whole

VERSION = 1
"""To be raised where the same recipe gives other weights than before."""

Weights = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Pretraining:
    """AdamW on one core; the learning rate rises, then falls by a cosine."""

    job: str
    text: str = "enwik8"
    steps: int = 2000
    examples: int = 2048
    lr: float = 1e-2
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.03
    warmup: float = 0.05
    seed: int = 0


def pretrained(
    how: Pretraining, build: Callable[[], nn.Module], load: Callable[[], Job], cache: Path | None
) -> Weights:
    """The weights from the cache; trained now where they are not there, or damaged.

    ``build`` makes the model, ``load`` the job that it is trained on. Several processes may do this at the same time:
    all train the same weights, and each puts them there whole.
    """
    with torch.random.fork_rng(devices=[]):
        model = build()
    path = cache_folder(cache) / file_name(how, model)
    weights = read_weights(path, model)
    if weights is None:
        check_writable(path.parent)
        trained = trained_model(how, load(), path)
        write_whole(path, packed(trained))
        weights = {name: param.detach() for name, param in trained.named_parameters()}
    return weights


def file_name(how: Pretraining, model: nn.Module) -> str:
    """Another one for another recipe or another model."""
    shapes = [(name, tuple(param.shape)) for name, param in model.named_parameters()]
    digest = hashlib.sha256(repr((VERSION, how, shapes)).encode()).hexdigest()
    return f"{how.job}-{how.text}-{digest[:12]}.weights"


def check_writable(folder: Path) -> None:
    """Raise DataError now, not after the training."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise DataError(
            f"pretrained weights cannot be kept in {folder}: {error.strerror}; let XDG_CACHE_HOME name another place"
        ) from error


def trained_model(how: Pretraining, job: Job, path: Path) -> nn.Module:
    """Train by the recipe, on one thread so that sums have one order; says so, for it takes minutes."""
    from rich.console import Console  # here: jobs that are not pretrained do without

    from lioncub.tools.reporting.progress import progress_bar

    console = Console(stderr=True)
    about = f"{how.steps:,} steps of {how.examples:,} {job.examples_unit}"
    console.print(f"Training {how.job} on {how.text}, {about}, once: for {path}", highlight=False, soft_wrap=True)
    model, batches = job.model(how.seed), torch.Generator().manual_seed(how.seed)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=how.lr, betas=how.betas, weight_decay=how.weight_decay, fused=True
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, how.lr, total_steps=how.steps, pct_start=how.warmup, cycle_momentum=False
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with progress_bar(console) as bar:
            for _ in bar.track(range(how.steps), description=f"Training {how.job}"):
                optimizer.zero_grad()
                job.loss(model, *job.batch(batches, how.examples)).backward()
                optimizer.step()
                schedule.step()
    finally:
        torch.set_num_threads(threads)
    return model


def packed(model: nn.Module) -> bytes:
    """SHA-256 of what follows, then all parameters as little-endian float32."""
    contents = as_bytes(model.parameters())
    return hashlib.sha256(contents).digest() + contents


def as_bytes(tensors: Iterable[Tensor]) -> bytes:
    return torch.cat([each.detach().reshape(-1) for each in tensors]).numpy().astype("<f4").tobytes()


def read_weights(path: Path, model: nn.Module) -> Weights | None:
    """The parameters, named and shaped as the model's; None where none can be read, or others than were written."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, contents = data[:32], data[32:]
    shapes = {name: param.shape for name, param in model.named_parameters()}
    sizes = [shape.numel() for shape in shapes.values()]
    if hashlib.sha256(contents).digest() != digest or len(contents) != 4 * sum(sizes):
        return None
    parts = torch.from_numpy(np.frombuffer(contents, "<f4").astype(np.float32)).split(sizes)
    return {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


def fingerprint(weights: Weights) -> str:
    """Tells weights of one recipe apart that were trained on machines which round differently."""
    return hashlib.sha256(as_bytes(weights.values())).hexdigest()[:8]
