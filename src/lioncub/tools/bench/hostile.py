"""``lioncub bench hostile``: the loss of training with workers that lie, by vote, by mean and by dense averaging.

Workers are virtual, all in one process, and use the library's codecs. The task is to predict the next byte of the
standard library's source from the eight before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from lioncub.codecs import Codec, Dense, Mean, Vote
from lioncub.errors import ConfigError
from lioncub.kernels.layout import Ballot, Layout, Span
from lioncub.tools.data.stdlib import load_stdlib
from lioncub.tools.reporting.docs import Markers, fenced
from lioncub.tools.reporting.grid import Grid
from lioncub.tools.reporting.machine import command_line, machine

MARKERS = Markers("hostile")
CODECS: dict[str, Codec] = {"vote": Vote(), "mean": Mean(), "dense": Dense()}
ATTACKS = {"flip": 1.0, "magnitude": 1e6}
"""The factors by which a liar multiplies the honest workers' mean update, negated."""
CONTEXT, BATCH, BETAS, LR = 8, 32, (0.9, 0.99), 2e-3


@dataclass(frozen=True, kw_only=True)
class HostileConfig:
    """The numbers of workers and liars, and the length of the training."""

    workers: tuple[int, ...] = (8, 9)
    most_liars: int = 4
    steps: int = 200
    seeds: int = 3
    out: Path = Path("bench-out")
    docs: Path | None = None

    def __post_init__(self) -> None:
        if not self.workers or min(self.workers) < 2:
            raise ConfigError(f"workers must be numbers from 2 up, got {list(self.workers)}")
        if not 0 <= self.most_liars < min(self.workers):
            raise ConfigError(f"most_liars must be fewer than the workers, got {self.most_liars}")
        if self.steps < 1 or self.seeds < 1:
            raise ConfigError(f"steps and seeds must be at least 1, got {self.steps} and {self.seeds}")
        if self.docs is not None:
            MARKERS.check(self.docs)


@dataclass(frozen=True)
class Trial:
    """One training run among liars, and the loss it ended with."""

    codec: str
    attack: str
    workers: int
    liars: int
    seed: int
    loss: float = float("nan")


def run_hostile(config: HostileConfig, console: Console | None = None) -> list[Trial]:
    """Train under every attack; print a table; write ``hostile.jsonl``, and the docs where asked."""
    console = Console() if console is None else console
    config.out.mkdir(parents=True, exist_ok=True)
    text = load_stdlib().train.long()
    todo = list(trials(config))
    done = [train(trial, text, config.steps) for trial in track(todo, "training", console=console, transient=True)]
    about = {**machine(), "command": command_line()}
    path = config.out / "hostile.jsonl"
    path.write_text("".join(json.dumps({**asdict(trial), **about}) + "\n" for trial in done), encoding="utf-8")
    grids = [table(done, attack, starting_loss(text)) for attack in ATTACKS]
    for grid in grids:
        console.print(grid.to_rich())
    console.print(str(path), highlight=False, soft_wrap=True)
    if config.docs is not None:
        where = f"Measured on {about['date']} at commit {about['commit'] or 'unknown'}, torch {about['torch']}; "
        where += f"means over {_plural(config.seeds, 'seed')}, after {_plural(config.steps, 'step')}.\n\n"
        where += f"{fenced([command_line()])}\n\n"
        MARKERS.write(config.docs, where + "\n".join(grid.to_markdown() for grid in grids))
    return done


def trials(config: HostileConfig) -> Iterator[Trial]:
    for attack in ATTACKS:
        for codec in CODECS:
            for workers in config.workers:
                for liars in range(config.most_liars + 1):
                    yield from (Trial(codec, attack, workers, liars, seed) for seed in range(config.seeds))


def model_of(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Embedding(256, 16), nn.Flatten(), nn.Linear(16 * CONTEXT, 64), nn.ReLU(), nn.Linear(64, 256)
    )


def loss_of(model: nn.Module, text: Tensor, generator: torch.Generator, batch: int) -> Tensor:
    at = torch.randint(len(text) - CONTEXT, (batch,), generator=generator)
    window = text[at[:, None] + torch.arange(CONTEXT + 1)]
    return cross_entropy(model(window[:, :CONTEXT]), window[:, CONTEXT])


def train(trial: Trial, text: Tensor, steps: int) -> Trial:
    """Distributed Lion with virtual workers, of whom the last ones lie."""
    model = model_of(trial.seed)
    codec, honest = CODECS[trial.codec], trial.workers - trial.liars
    x = parameters_to_vector(model.parameters()).detach()
    layout = Layout((x.numel(),), 1)
    momenta = torch.zeros(honest, x.numel())
    generators = [torch.Generator().manual_seed(1000 * trial.seed + worker) for worker in range(honest)]
    everyone = (Span(0, layout.padded_numel, tuple(range(trial.workers))),)
    for step in range(steps):
        gradients = torch.stack([gradient(model, text, generator) for generator in generators])
        u = BETAS[0] * momenta + (1 - BETAS[0]) * gradients
        lie = -ATTACKS[trial.attack] * u.mean(dim=0)
        sent = [*u, *[lie] * trial.liars]
        payloads = torch.stack([codec.encode(padded(update, layout), layout, step) for update in sent])
        ballot = Ballot(step, everyone)
        direction = codec.decode(codec.combine(payloads, ballot), ballot)[: x.numel()]
        x = x - LR * direction
        vector_to_parameters(x, model.parameters())
        momenta = BETAS[1] * momenta + (1 - BETAS[1]) * gradients
    with torch.no_grad():
        loss = loss_of(model, text, torch.Generator().manual_seed(12345), 4096).item()
    return Trial(trial.codec, trial.attack, trial.workers, trial.liars, trial.seed, loss)


def gradient(model: nn.Module, text: Tensor, generator: torch.Generator) -> Tensor:
    loss = loss_of(model, text, generator, BATCH)
    return parameters_to_vector(torch.autograd.grad(loss, list(model.parameters())))


def padded(values: Tensor, layout: Layout) -> Tensor:
    return nn.functional.pad(values, (0, layout.padded_numel - values.numel()))


def starting_loss(text: Tensor) -> float:
    with torch.no_grad():
        return loss_of(model_of(0), text, torch.Generator().manual_seed(12345), 4096).item()


def table(done: Sequence[Trial], attack: str, start: float) -> Grid:
    """A row for each codec and number of workers, a column for each number of liars."""
    chosen = [trial for trial in done if trial.attack == attack]
    liars = sorted({trial.liars for trial in chosen})
    rows: dict[tuple[str, int], list[str]] = {(trial.codec, trial.workers): [] for trial in chosen}
    for (codec, workers), found in rows.items():
        for count in liars:
            losses = [s.loss for s in chosen if (s.codec, s.workers, s.liars) == (codec, workers, count)]
            found.append(f"{sum(losses) / len(losses):.3f}")
    title = {"flip": "Liars that vote against the honest", "magnitude": "Liars that shout a million times louder"}
    note = f"Loss in nats per byte at the end; before training it is {start:.3f}."
    headings = ["sent", "workers", *(_plural(count, "liar") for count in liars)]
    cells = [[codec, str(workers), *found] for (codec, workers), found in rows.items()]
    return Grid(title[attack], headings, cells, note)


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
