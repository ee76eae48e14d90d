"""A small training job that real workers and the reference both run, on the same made-up gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lioncub import Codec, DistributedLion, MomentumSync, reference
from lioncub.momentum.policy import divergence, sample
from lioncub.reference import Combiner

SHAPES: tuple[tuple[int, ...], ...] = ((), (7,), (8,), (3, 3), (63,), (4, 4, 4), (65,), (4097,), (5, 13), (1,))


@dataclass(frozen=True)
class Job:
    """What is trained and for how long. Gradients are heavy-tailed, partly zero, and shared between workers in part."""

    shapes: tuple[tuple[int, ...], ...] = SHAPES
    steps: int = 20
    lr: float = 0.01
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.1
    memory: float = 0.15
    """So little that the momentum's memory grows for 15 steps and is β2's from there."""
    warmup: int = 10
    absent: tuple[tuple[int, int, int], ...] = ()
    """(step, worker, tensor) whose gradient is None."""
    broken: tuple[tuple[int, int, int], ...] = ()
    """(step, worker, tensor) whose gradient holds a NaN."""
    dtype: torch.dtype = torch.float32
    options: dict[str, Any] = field(default_factory=dict)

    def parameters(self) -> list[Tensor]:
        generator = torch.Generator().manual_seed(7)
        return [torch.randn(shape, generator=generator).to(self.dtype) for shape in self.shapes]

    def gradient(self, step: int, worker: int, tensor: int) -> Tensor | None:
        if (step, worker, tensor) in self.absent:
            return None
        g = _gradient(self.shapes[tensor], step, worker, tensor).to(self.dtype)
        if (step, worker, tensor) in self.broken:
            g = g.clone()
            g.view(-1)[-1] = float("nan")
        return g


SHORT = Job(steps=6, memory=0.03, warmup=3)
"""The memory grows for three steps, and the learning rate rises for as many."""
LOSSY = replace(
    SHORT,
    absent=tuple((s, w, tensor) for s in range(6) for w in range(4) for tensor in (2, 7) if (s + w + tensor) % 3 == 0),
    broken=((0, 1, 7), (3, 0, 0), (5, 1, 8)),
)
"""Some gradients are missing, and some are not finite."""


@cache
def _gradient(shape: tuple[int, ...], step: int, worker: int, tensor: int) -> Tensor:
    own = torch.Generator().manual_seed(1_000_003 * step + 1009 * worker + tensor)
    common = torch.Generator().manual_seed(1_000_003 * step + tensor + 500_000)
    g = torch.randn(shape, generator=own) / torch.randn(shape, generator=own)
    g = g + torch.randn(shape, generator=common)
    flat = g.view(-1)
    flat[(torch.arange(flat.numel()) + step) % 11 == 0] = 0.0
    if tensor == 4 and worker != step % 3:
        flat[::2] = 0.0
    return g


def train(rank: int, group: dist.ProcessGroup, job: Job, codec: Codec, collective: Any) -> dict[str, Any]:
    """What one worker does; returns its parameters, momenta and last statistics."""
    params = [nn.Parameter(value) for value in job.parameters()]
    named = [(f"p{number}", param) for number, param in enumerate(params)]
    rates = {"memory": job.memory, "warmup": job.warmup}
    settings = {"codec": codec, "collective": collective, "process_group": group, **rates, **job.options}
    optimizer = DistributedLion(named, job.lr, job.betas, job.weight_decay, **settings)
    abstentions = []
    for step in range(job.steps):
        optimizer.zero_grad()
        gradients = [job.gradient(step, rank, tensor) for tensor in range(len(params))]
        pairs = [(param, g) for param, g in zip(params, gradients, strict=True) if g is not None]
        sum(((param * g).sum() for param, g in pairs), torch.zeros(())).backward()
        assert all(torch.equal(param.grad, g) or g.isnan().any() for param, g in pairs if param.grad is not None)
        expected = optimizer.traffic()
        optimizer.step()
        assert (optimizer.stats.bytes_sent, optimizer.stats.bytes_received) == (
            expected.sent_bytes,
            expected.received_bytes,
        )
        abstentions.append(optimizer.stats.abstentions)
    return {
        "parameters": [param.detach() for param in params],
        "momenta": [optimizer.state[param]["exp_avg"] for param in params],
        "stats": optimizer.stats,
        "abstentions": abstentions,
    }


def oracle(job: Job, num_workers: int, combine: Combiner, sync: MomentumSync | None = None) -> tuple[Any, Any]:
    """The same training by the reference: parameters, and momenta ``[tensor][worker]``."""
    xs = [value.view(-1) for value in job.parameters()]
    ms = [torch.zeros(num_workers, x.numel(), dtype=job.options.get("momentum_dtype")) for x in xs]
    spread = [0.0] * len(xs)
    selected = [sync is not None and sync.budget is None] * len(xs)
    for step in range(job.steps):
        before = [m.clone() for m in ms]
        broken = {worker for s, worker, _ in job.broken if s == step}
        for tensor in range(len(xs)):
            rows = [job.gradient(step, worker, tensor) for worker in range(num_workers)]
            voters = [w for w, row in enumerate(rows) if row is not None and w not in broken]
            g = torch.stack([torch.zeros_like(xs[tensor]) if row is None else row.view(-1) for row in rows])
            xs[tensor], ms[tensor] = reference.lion_step(
                xs[tensor],
                ms[tensor],
                g,
                step,
                combine,
                lr=job.lr,
                betas=job.betas,
                weight_decay=job.weight_decay,
                memory=job.memory,
                warmup=job.warmup,
                voters=voters,
                store=_store(job, tensor, step),
            )
        if sync is not None and num_workers > 1:
            selected = _synchronize(ms, before, selected, spread, step, sync)
    return xs, ms


def _store(job: Job, tensor: int, step: int) -> Callable[[Tensor], Tensor] | None:
    seed = job.options.get("rounding_seed", 0)
    noisy = job.options.get("stochastic_rounding")
    return partial(reference.rounded_at_random, seed=seed, tensor=tensor, t=step) if noisy else None


def _synchronize(
    ms: list[Tensor], before: list[Tensor], selected: list[bool], spread: list[float], step: int, sync: MomentumSync
) -> list[bool]:
    """Average this step's window of the selected tensors laid end to end; the selection of the next step."""
    chosen = [m for m, wanted in zip(ms, selected, strict=True) if wanted]
    if chosen:
        everything = torch.cat(chosen, dim=1)
        start, stop = sync.window(step, everything.shape[1])
        everything[:, start:stop] = reference.synchronize_momentum(everything[:, start:stop], sync.dtype)
        for m, part in zip(chosen, everything.split([m.shape[1] for m in chosen], dim=1), strict=True):
            m.copy_(part)
    for tensor in range(step % sync.every, len(ms), sync.every):
        spread[tensor] = divergence(torch.stack([sample(row) for row in before[tensor]]).numpy())
    if not sync.chooses_at(step):
        return selected
    sizes = [m.shape[1] for m in ms]
    return sync.choose(spread, sizes, sum(sizes))


def assert_matches(results: Sequence[dict[str, Any]], expected: tuple[Any, Any]) -> None:
    """Every worker's parameters and momenta equal the oracle's, bit for bit."""
    xs, ms = expected
    for worker, result in enumerate(results):
        for tensor, (x, m) in enumerate(zip(xs, ms, strict=True)):
            mine = result["parameters"][tensor].view(-1)
            assert torch.equal(mine, x), f"parameter {tensor} of worker {worker}: {_first_difference(mine, x)}"
            own = result["momenta"][tensor].view(-1)
            assert torch.equal(own, m[worker]), f"momentum {tensor} of worker {worker}"


def _first_difference(a: Tensor, b: Tensor) -> str:
    where = int((a != b).nonzero()[0])
    return f"{int((a != b).sum())} of {a.numel()} differ, first at {where}: {a[where]} against {b[where]}"
