"""One training process: `torchrun … -m lioncub.demo.worker CONFIG STORE RECORDS`.

Every worker builds the same model and trains on its own batches; the optimizer does the communication.
All methods train one after another in the same processes, because starting four takes about ten seconds.
"""

import math
import os
import sys
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import TextIO

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.elastic.multiprocessing.errors import record

from lioncub import Dense, DistributedLion, LionCub, Vote
from lioncub.demo.config import METHODS, DemoConfig
from lioncub.demo.corpus import Corpus, load_corpus
from lioncub.demo.errors import DemoError
from lioncub.demo.model import ByteGPT, next_byte_loss
from lioncub.demo.records import Step

GROUP_TIMEOUT = timedelta(seconds=60)


def build_optimizer(method: str, model: ByteGPT, config: DemoConfig) -> DistributedLion:
    """The optimizer of a method; hyperparameters are the same for all."""
    params = list(model.named_parameters())
    if method == "global":
        return DistributedLion(params, lr=config.lr, weight_decay=config.weight_decay, codec=Dense())
    if method == "vote":
        return DistributedLion(params, lr=config.lr, weight_decay=config.weight_decay, codec=Vote())
    if method == "cub":
        return LionCub(params, lr=config.lr, weight_decay=config.weight_decay, bits=4, grid="log")
    raise ValueError(f"unknown method {method!r}")


@torch.no_grad()
def validation_loss(model: ByteGPT, windows: Tensor) -> float:
    """Mean loss over all `windows`, each worker taking its share; all workers must call it together."""
    share = windows[dist.get_rank() :: dist.get_world_size()]
    total = torch.tensor([next_byte_loss(model, share).item() * len(share), len(share)], dtype=torch.float64)
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


class Journal:
    """Adds up what one worker did and, where it has a file, writes a line for each step."""

    def __init__(self, method: str, file: TextIO | None) -> None:
        self.method, self.file = method, file
        self.seconds, self.bytes_sent = 0.0, 0

    def add(
        self,
        step: int,
        seconds: float,
        bytes_sent: int,
        train_loss: float | None,
        validation_loss: float | None,
    ) -> None:
        self.seconds += seconds
        self.bytes_sent += bytes_sent
        if self.file is not None:
            line = Step(
                method=self.method,
                step=step,
                seconds=self.seconds,
                step_seconds=seconds,
                bytes_sent=self.bytes_sent,
                train_loss=train_loss,
                validation_loss=validation_loss,
            ).to_json()
            self.file.write(line + "\n")
            self.file.flush()


def train(config: DemoConfig, method: str, corpus: Corpus, journal: Journal) -> None:
    """Train one model with one method. The clock runs from a batch to the end of its optimizer step."""
    torch.manual_seed(config.seed)
    model = ByteGPT(width=config.width, layers=config.layers, heads=config.heads, context=config.context)
    optimizer = build_optimizer(method, model, config)
    batches = torch.Generator().manual_seed(config.seed * 65_537 + dist.get_rank() + 1)
    held_out = corpus.validation_batch(config.validation_windows, config.context)
    launcher = os.getppid()

    journal.add(0, 0.0, 0, None, validation_loss(model, held_out))
    for step in range(1, config.steps + 1):
        start = perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = config.lr_at(step)
        loss = next_byte_loss(model, corpus.batch(batches, config.batch, config.context))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        seconds = perf_counter() - start

        if not math.isfinite(loss.item()):
            raise DemoError(f"the training loss became {loss.item()} at step {step}: lower the learning rate")
        if os.getppid() != launcher:
            raise DemoError(f"the process that launched this worker is gone; stopped after step {step}")
        due = step % config.validate_every == 0 or step == config.steps
        held_out_loss = validation_loss(model, held_out) if due else None
        journal.add(step, seconds, optimizer.stats.bytes_sent, loss.item(), held_out_loss)


@record
def main() -> None:
    config_path, store, records_path = sys.argv[1:]
    config = DemoConfig.from_json(Path(config_path).read_text())
    corpus = load_corpus()
    # A file as the store: unlike the default one it opens no port, so everything stays on this machine.
    dist.init_process_group(
        "gloo",
        init_method=Path(store).absolute().as_uri(),
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=GROUP_TIMEOUT,
    )
    try:
        with open(records_path, "w", encoding="utf-8") if dist.get_rank() == 0 else nullcontext() as file:
            for method in METHODS:
                train(config, method, corpus, Journal(method, file))
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
