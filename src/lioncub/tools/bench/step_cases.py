"""Whole optimizer steps on the tensors of a model, against the optimizers people use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import repeat
from typing import Any

import torch
from torch import Tensor
from torch.optim import AdamW, Optimizer

from lioncub import Vote, kernels, rule
from lioncub.kernels import Direction, Move, UpdateVector
from lioncub.kernels.layout import BLOCK, Ballot, Layout, Span
from lioncub.lion import Lion
from lioncub.step.huge_pages import zeros_like_all
from lioncub.tools.bench.cases import Case
from lioncub.tools.bench.shapes import Shape

FUSED, FOREACH = "AdamW(fused=True)", "AdamW(foreach=True)"
LION_PYTORCH = ("lion-pytorch", "lion-pytorch foreach")
LION, TWO_PHASE = "lioncub.Lion", "two-phase-ready"
HALF, BARE = "bfloat16 momentum", "no spare momentum"
NUM_WORKERS = 4

ADAMW_BYTES = (16, 12)
"""Read and written per parameter: x, m, v and g; x, m and v."""
LION_BYTES = (12, 8)
TWO_PHASE_BYTES = (8 + 1 / 8 + 4 + 1 / 8, 4 + 1 / 8 + 1 / 32 + 4)
"""Encode, vote, apply: encode writes the next momentum, apply touches x alone."""
BARE_TWO_PHASE_BYTES = (8 + 1 / 8 + 12 + 1 / 8, 1 / 8 + 1 / 32 + 8)
"""Apply reads momentum and gradient again."""
HALF_LION_BYTES = (10, 6)
HALF_TWO_PHASE_BYTES = (6 + 1 / 8 + 4 + 1 / 8, 2 + 1 / 8 + 1 / 32 + 4)
SETTINGS: dict[str, Any] = {"lr": 1e-4, "weight_decay": 0.01}


def parameters(shapes: Sequence[Shape]) -> list[Tensor]:
    """Random parameters with random gradients. All methods share them, so that a large model fits."""
    generator = torch.Generator().manual_seed(0)
    params = [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]
    for param in params:
        param.grad = torch.randn(param.shape, generator=generator)
    return params


def step_cases(model: str, shapes: Sequence[Shape], bodies: Sequence[str]) -> list[Case]:
    """Every method, and ours with every body."""
    params = parameters(shapes)
    numel = sum(param.numel() for param in params)

    def case(name: str, step: Callable[[], object], traffic: tuple[float, float]) -> Case:
        return Case(
            group="step",
            name=name,
            run=lambda _: step(),
            bytes_read=round(traffic[0] * numel),
            bytes_written=round(traffic[1] * numel),
            limit="axpy",
            model=model,
            num_tensors=len(params),
            numel=numel,
            ratio_to=FUSED,
        )

    theirs = [
        case(FUSED, AdamW(params, fused=True, **SETTINGS).step, ADAMW_BYTES),
        case(FOREACH, AdamW(params, foreach=True, **SETTINGS).step, ADAMW_BYTES),
        *(case(name, optimizer.step, LION_BYTES) for name, optimizer in lion_pytorch(params).items()),
    ]
    ours = [
        case(LION, Lion(params, **SETTINGS).step, LION_BYTES),
        case(TWO_PHASE, TwoPhaseReady(params).step, TWO_PHASE_BYTES),
        case(f"{TWO_PHASE}, {BARE}", TwoPhaseReady(params, spare=False).step, BARE_TWO_PHASE_BYTES),
        case(f"{LION}, {HALF}", Lion(params, momentum_dtype=torch.bfloat16, **SETTINGS).step, HALF_LION_BYTES),
        case(f"{TWO_PHASE}, {HALF}", TwoPhaseReady(params, torch.bfloat16).step, HALF_TWO_PHASE_BYTES),
    ]
    return [*theirs, *(replace(own, body=body) for own in ours for body in bodies)]


def missing_rivals() -> dict[str, str]:
    """Optimizers that cannot be compared with, and why."""
    return {} if find_spec("lion_pytorch") else {"lion-pytorch": "not installed: pip install lion-pytorch"}


def lion_pytorch(params: Sequence[Tensor]) -> dict[str, Optimizer]:
    """Both of its ways that run on CPU tensors: tensor by tensor, and foreach; none where it is not installed."""
    if missing_rivals():
        return {}
    from lion_pytorch import Lion as Plain
    from lion_pytorch.foreach import Lion as Foreach

    return {name: kind(params, **SETTINGS) for name, kind in zip(LION_PYTORCH, (Plain, Foreach), strict=True)}


class TwoPhaseReady:
    """The computation of one of four workers in a step, without the network: encode, vote on its shard, apply.

    Its own payload stands for those of the other three: as large and as random.
    """

    def __init__(
        self, params: Sequence[Tensor], momentum_dtype: torch.dtype = torch.float32, *, spare: bool = True
    ) -> None:
        self.params = params
        self.momenta, spares = (zeros_like_all(params, [momentum_dtype] * len(params)) for _ in range(2))
        self.spares = spares if spare else []
        self.group = SETTINGS | {"betas": (0.9, 0.99), "memory": 10.0, "warmup": 200, "maximize": False}
        self.group |= {"step": 1_000_000, "since": 0}  # long after the momentum's memory has grown
        self.layout = Layout(tuple(param.numel() for param in params), NUM_WORKERS)
        shard = self.layout.blocks // NUM_WORKERS * BLOCK
        self.ballot = Ballot(0, (Span(0, shard, tuple(range(NUM_WORKERS))),))

    def update_vector(self) -> UpdateVector:
        next_momenta = self.spares or repeat(None, len(self.params))
        slots = zip(self.params, self.momenta, next_momenta, strict=True)
        parts = [rule.update(m, x.grad, self.group, next_m) for x, m, next_m in slots if x.grad is not None]
        return UpdateVector(parts, self.layout, torch.float32, torch.device("cpu"))

    def moves(self) -> list[Move]:
        return [
            rule.move(x, m, None if self.spares else x.grad, self.group, start=start, num_voters=NUM_WORKERS)
            for x, m, start in zip(self.params, self.momenta, self.layout.starts, strict=True)
        ]

    def step(self) -> None:
        payload, _ = kernels.encode_signs(self.update_vector(), 0, abstain=False)
        combined = kernels.majority(payload.view(NUM_WORKERS, -1, BLOCK // 8), self.ballot, Vote().tally)
        payload[: len(combined)] = combined
        kernels.apply_(self.moves(), Direction("signs", payload))
        if self.spares:
            self.momenta, self.spares = self.spares, self.momenta
