"""The training that the tests of this folder interrupt: ``torchrun … train.py CONFIG``, where CONFIG is JSON."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import Tensor, nn

import lioncub
from lioncub import optimizer
from lioncub.checkpoint import disk, ownership
from lioncub.transport import comm
from lioncub.wire import headers

POINTS: dict[str, list[tuple[Any, str]]] = {
    "before header": [(headers.Header, "pack")],
    "in vote": [(comm.Pending, "wait")],
    "after vote": [(optimizer.DistributedLion, "apply")],
    "in save": [(disk, name) for name in ("create", "write", "sync", "rename", "sync_folder")],
}


@dataclass(frozen=True)
class Fault:
    """The end of a worker: at which of these calls, counted from the first step of its attempt."""

    point: str
    rank: int
    calls: int
    signal: int = signal.SIGKILL

    def arm(self, happened: Path) -> None:
        """Count calls; at the last, leave the time in a file and take the signal."""
        left = [self.calls]
        counting = threading.Lock()

        def count() -> None:
            with counting:
                left[0] -= 1
                if left[0] == 0:
                    happened.write_text(str(time.monotonic()))
                    os.kill(os.getpid(), self.signal)

        for owner, name in POINTS[self.point]:
            setattr(owner, name, counted(getattr(owner, name), count))


def counted(function: Callable[..., Any], count: Callable[[], None]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        count()
        return function(*args, **kwargs)

    return call


@dataclass(frozen=True, kw_only=True)
class Config:
    """What to train, and what goes wrong."""

    folder: str
    """For checkpoints, and for what workers write about themselves."""
    steps: int
    every: int
    faults: tuple[Fault, ...] = ()
    """One for each attempt."""
    abstain_seed: int = 0
    """If set, every worker now and then abstains, has no gradient, or one that is not finite."""
    watch_every: int = 0
    """If set, a line about this process is written after so many steps."""
    bucket_numel: int = 100
    pause_seconds: float = 0.0
    timeout_seconds: float = 60.0
    job: str = ""
    """If set, every checkpoint says that this job has saved it, and every worker writes down which one it loads."""
    keep: int = 2
    patience_seconds: float = ownership.PATIENCE_SECONDS
    """How long to wait for a folder that another job has."""
    start_file: str = ""
    """If set, a worker that has imported torch waits for this file before it joins the others."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Config:
        values = json.loads(text)
        return cls(**values | {"faults": tuple(Fault(**fault) for fault in values["faults"])})


def spoil(model: nn.Module, chance: random.Random) -> None:
    """Some of the bad luck that a worker can have with its gradients."""
    for param in model.parameters():
        match chance.randrange(20):
            case 0:
                param.grad = None
            case 1 if param.grad is not None:
                param.grad[..., 0] = chance.choice([float("nan"), float("inf")])


def state_of(model: nn.Module, lion: torch.optim.Optimizer) -> list[Tensor]:
    momenta = [lion.state[param]["exp_avg"] for param in model.parameters()]
    return [tensor.detach() for tensor in (*model.parameters(), *momenta, *model.buffers())]


def digest(model: nn.Module, lion: torch.optim.Optimizer, num_examples: int) -> str:
    """Of everything that must be as if nothing had happened."""
    total = hashlib.sha256(str(num_examples).encode())
    for tensor in [*state_of(model, lion), torch.get_rng_state()]:
        total.update(tensor.contiguous().numpy().tobytes())
    return total.hexdigest()


def report(file: TextIO, step: int, model: nn.Module) -> None:
    crc = 0
    for param in model.parameters():
        crc = zlib.crc32(param.detach().numpy().tobytes(), crc)
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    line = {"step": step, "crc": crc, "bytes": resident, "files": len(os.listdir("/proc/self/fd"))}
    file.write(json.dumps(line | {"pid": os.getpid()}) + "\n")
    file.flush()


def note_loaded(path: Path, job: str, run: lioncub.checkpoint.resume.Run) -> None:
    """Whose checkpoint it is, of which step. From now on this job's name is in the checkpoints."""
    with path.open("a") as file:
        file.write(
            json.dumps({"job": job, "by": run.extra.get("job", ""), "step": run.step, "pid": os.getpid()}) + "\n"
        )
    run.extra["job"] = job


def main() -> None:
    config = Config.from_json(sys.argv[1])
    folder = Path(config.folder)
    ownership.PATIENCE_SECONDS = config.patience_seconds
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    while config.start_file and not Path(config.start_file).exists():
        time.sleep(0.02)
    with lioncub.distributed.init("gloo", timeout=timedelta(seconds=config.timeout_seconds)) as world:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.1), nn.ReLU(), nn.Linear(16, 1))
        sync = lioncub.MomentumSync(every=8)
        lion = lioncub.DistributedLion(
            model.named_parameters(),
            1e-3,
            momentum_sync=sync,
            bucket_numel=config.bucket_numel,
            overlap=not config.abstain_seed,
        )
        torch.manual_seed(1 + world.rank)
        with (
            (folder / f"watched-{world.rank}").open("a") as file,
            lioncub.resume(folder / "checkpoints", model, lion, every=config.every, keep=config.keep) as run,
        ):
            if config.job:
                note_loaded(folder / f"loaded-{world.rank}", config.job, run)
            if attempt < len(config.faults) and config.faults[attempt].rank == world.rank:
                config.faults[attempt].arm(folder / f"fault-{attempt}")
            for step in run.steps(config.steps):
                x = torch.randn(4, 8)
                numbers = random.Random(f"{config.abstain_seed} {world.rank} {step}")
                must_vote = not config.abstain_seed or step % world.size == world.rank  # somebody has to
                lion.zero_grad()
                if not must_vote and numbers.random() < 0.1:
                    lion.abstain()
                else:
                    (model(x).squeeze(1) - x[:, 0]).square().mean().backward()
                    if not must_vote:
                        spoil(model, numbers)
                    lion.step()
                run.extra["examples"] = run.extra.get("examples", 0) + len(x)
                time.sleep(config.pause_seconds)
                if config.watch_every and step % config.watch_every == 0:
                    report(file, step, model)
        (folder / f"digest-{world.rank}").write_text(digest(model, lion, run.extra["examples"]))


if __name__ == "__main__":
    main()
