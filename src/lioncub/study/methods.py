"""The methods by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor

from lioncub.codecs import Codec, Dense, Levels, Mean, Vote
from lioncub.codecs.levels import Grid
from lioncub.momentum import MomentumSync
from lioncub.recipes import SELECTIVE, cub_codec
from lioncub.study.baselines import (
    DGC,
    DeMo,
    DiLoCo,
    EFSign,
    GlobalAdamW,
    GlobalLion,
    GradDrop,
    PowerSGD,
    SignMomentum,
    Signum,
    SparseLoCo,
    StreamingDiLoCo,
    TernGrad,
)
from lioncub.study.ideas import DitheredLion, FeedbackLion
from lioncub.study.kinds import kind
from lioncub.study.lions import VirtualLion
from lioncub.study.method import Method
from lioncub.study.records import Spec
from lioncub.study.tasks import Family

Named = Sequence[tuple[str, Tensor]]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A method that runs can be made with."""

    label: str
    family: Family
    build: Callable[[Named, Spec], Method]
    param_dtype: torch.dtype = torch.float32
    """What parameters are kept in; gradients are computed in float32, at their values."""
    memories: tuple[str, ...] = ()
    """What a search tries for :attr:`Spec.memory`, besides what the method comes with."""


GROWING = "growing-"


def lion_memory(spec: Spec) -> dict[str, Any]:
    """What a Lion's memory is in a run: as the library comes, a constant β2, or growing with another c."""
    if not spec.memory:
        return {}
    if spec.memory.startswith(GROWING):
        return {"memory": float(spec.memory.removeprefix(GROWING))}
    return {"memory": "constant", "betas": (0.9, float(spec.memory))}


def lion(
    label: str,
    codec: Codec | Callable[[str], Codec],
    *,
    kind: type[VirtualLion] = VirtualLion,
    param_dtype: torch.dtype = torch.float32,
    **options: Any,
) -> Entry:
    """A member of our own optimizer's family."""

    def build(named: Named, spec: Spec) -> Method:
        given = {"weight_decay": spec.weight_decay, "seed": spec.seed, "watch": True} | lion_memory(spec) | options
        return kind(named, spec.workers, codec=codec, **given)

    return Entry(label=label, family="lion", build=build, param_dtype=param_dtype)


def by_name(patterns: dict[str, Codec], otherwise: Codec) -> Callable[[str], Codec]:
    """The codec of the first pattern that a parameter's name matches."""

    def codec_of(name: str) -> Codec:
        return next((codec for pattern, codec in patterns.items() if fnmatchcase(name, pattern)), otherwise)

    return codec_of


WIDTHS: dict[Grid, tuple[int, ...]] = {
    "midrise": (2, 3, 4, 5, 8),
    "log": (2, 3, 4, 5),
    "midtread": (2, 3, 4, 5, 8),
    "float": (2, 3, 4, 5),
}


def _levels() -> dict[str, Entry]:
    """Every width on every grid."""
    entries = {}
    for grid, widths in WIDTHS.items():
        for bits in widths:
            entries[f"{grid}-{bits}"] = lion(f"{bits} bits, {grid}", Levels(bits, "l1", grid))
            if grid != "float":
                entries[f"{grid}-{bits}-linf"] = lion(f"{bits} bits, {grid}, L∞", Levels(bits, "linf", grid))
    return entries


def _synchronised() -> dict[str, Entry]:
    """Votes and levels whose momenta meet."""
    policies: dict[str, MomentumSync] = {
        "sync-16": MomentumSync(every=16),
        "sync-64": MomentumSync(every=64),
        "sync-256": MomentumSync(every=256),
        "sync-embedding": MomentumSync(every=16, match=lambda name, _: kind(name) in ("embedding", "head")),
        "sync-attention": MomentumSync(every=16, match=lambda name, _: kind(name) == "attention"),
        "sync-mlp": MomentumSync(every=16, match=lambda name, _: kind(name) == "mlp"),
        "sync-budget": SELECTIVE,
        "sync-budget-1": MomentumSync(every=16, budget=1.0),
    }
    return {
        f"{name}+{policy}": lion(f"{label}, {policy}", codec, momentum_sync=sync)
        for name, label, codec in (("vote", "vote", Vote()), ("float-4", "4 bits, float", Levels(4, grid="float")))
        for policy, sync in policies.items()
    }


def baseline(label: str, family: Family, method: Callable[..., Method], **options: Any) -> Entry:
    """Somebody else's method."""

    def build(named: Named, spec: Spec) -> Method:
        params = [param for _, param in named]
        return method(params, spec.workers, weight_decay=spec.weight_decay, seed=spec.seed, **options)

    return Entry(label=label, family=family, build=build)


BETA2S = (0.999, 0.99, 0.95)


def adamw(
    label: str, method: Callable[..., Method], beta2: float = 0.999, *, with_names: bool = False, **options: Any
) -> Entry:
    """Somebody else's method with AdamW inside; its β2 is searched, beginning with the one that is published.

    ``with_names``: the method is told the parameters' names.
    """

    def build(named: Named, spec: Spec) -> Method:
        betas = (0.9, float(spec.memory or beta2))
        params = [param for _, param in named]
        given = {"names": [name for name, _ in named]} | options if with_names else options
        return method(params, spec.workers, weight_decay=spec.weight_decay, seed=spec.seed, betas=betas, **given)

    others = tuple(str(value) for value in BETA2S if value != beta2)
    return Entry(label=label, family="adamw", build=build, memories=others)


def _global_lion(named: Named, spec: Spec) -> Method:
    """With the memory that ours has."""
    params = [param for _, param in named]
    given = {"memory": "growing"} | lion_memory(spec)
    return GlobalLion(params, spec.workers, weight_decay=spec.weight_decay, seed=spec.seed, **given)


def _dgc(named: Named, spec: Spec) -> Method:
    """With a tenth of the steps to warm up in, as its paper gives 4 epochs of 70 and more."""
    params = [param for _, param in named]
    return DGC(params, spec.workers, weight_decay=spec.weight_decay, seed=spec.seed, warmup_steps=spec.steps // 10)


BASELINES: dict[str, Entry] = {
    "lion": Entry(label="global Lion", family="lion", build=_global_lion),
    "adamw": adamw("global AdamW", GlobalAdamW),
    "adamw-bf16": adamw("global AdamW, bfloat16 gradients", GlobalAdamW, precision="bfloat16"),
    "terngrad": baseline("TernGrad", "sgd", TernGrad),
    "dgc": Entry(label="DGC, 4%", family="sgd", build=_dgc),
    "graddrop": baseline("GradDrop, 4%", "sgd", GradDrop),
    "signum-vote": baseline("D-SIGNUM, vote", "lion", Signum, combine="vote"),
    "signum-mean": baseline("D-SIGNUM, mean", "lion", Signum, combine="mean"),
    "ef-sign": baseline("EF-signSGD", "sgd", EFSign),
    "powersgd": baseline("PowerSGD, rank 4", "sgd", PowerSGD),
    "powersgd-adamw": adamw("PowerSGD, rank 4, AdamW", PowerSGD),
    "local-adamw-8": adamw("AdamW, averaged every 8 steps", DiLoCo, 0.95, every=8, outer_lr=1.0, outer_momentum=0.0),
    "diloco-8": adamw("DiLoCo, every 8 steps", DiLoCo, 0.95, every=8),
    "diloco-32": adamw("DiLoCo, every 32 steps", DiLoCo, 0.95, every=32),
    "diloco-32-float4": adamw(
        "DiLoCo, every 32 steps, 4 bits both ways", DiLoCo, 0.95, every=32, up="float4", down="float4"
    ),
    "streaming-32": adamw(
        "Streaming DiLoCo, every 32 steps, 4 bits both ways",
        StreamingDiLoCo,
        0.95,
        with_names=True,
        every=32,
        layers_per_fragment=1,  # the paper's 3 would leave 2 fragments of models with 4 layers
    ),
    "sign-momentum-12": adamw("sign momentum, every 12 steps", SignMomentum, 0.95),
    "sparse-loco-32": adamw("SparseLoCo, every 32 steps", SparseLoCo, 0.95),
    "sparse-loco-32-senders": adamw("SparseLoCo, every 32 steps, means of senders", SparseLoCo, 0.95, mean="senders"),
    "demo": baseline("DeMo", "lion", DeMo),
    "demo-2": baseline("DeMo, second version", "lion", DeMo, beta=0.995, subtract=0.2),
}

METHODS: dict[str, Entry] = {
    "exact": lion("exact averaging", Dense()),
    "vote": lion("vote", Vote()),
    "mean": lion("mean of signs", Mean()),
    "vote-zero": lion("vote, ties stay", Vote(ties="zero")),
    "vote-abstain": lion("vote, zeros abstain", Vote(zeros="abstain")),
    "vote-feedback": lion("vote, error feedback", Vote(), kind=FeedbackLion),
    "vote-dithered": lion("vote, stochastic signs", Vote(), kind=DitheredLion),
    **_levels(),
    **_synchronised(),
    "vote-embedding-log-4": lion(
        "vote, embedding and head 4 bits log",
        by_name(dict.fromkeys(("*embedding*", "head*"), Levels(4, grid="log")), Vote()),
    ),
    "cub": lion("Lion Cub: 4 bits, log, selected momenta", cub_codec(4, grid="log"), momentum_sync=SELECTIVE),
    "cub-2": lion("Lion Cub: 2 bits, log, selected momenta", cub_codec(2, grid="log"), momentum_sync=SELECTIVE),
    "cub-4": lion("Lion Cub: 4 bits, float, selected momenta", cub_codec(4, grid="float"), momentum_sync=SELECTIVE),
    "cub-3": lion("Lion Cub: 3 bits, float, selected momenta", cub_codec(3, grid="float"), momentum_sync=SELECTIVE),
    "float-4-half": lion("4 bits, float, bfloat16 momentum", Levels(4, grid="float"), momentum_dtype=torch.bfloat16),
    "float-4-bf16": lion("4 bits, float, bfloat16 parameters", Levels(4, grid="float"), param_dtype=torch.bfloat16),
    "float-4-bf16-stochastic": lion(
        "4 bits, float, bfloat16 parameters, stochastic rounding",
        Levels(4, grid="float"),
        param_dtype=torch.bfloat16,
        stochastic_rounding=True,
    ),
    **BASELINES,
}
