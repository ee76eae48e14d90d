"""The methods by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from lioncub.codecs import Codec, Dense, Levels, Mean, Vote
from lioncub.codecs.recommended import cub_codec
from lioncub.momentum.policy import MomentumSync
from lioncub.optimizer import SELECTIVE
from lioncub.tools.study.baselines import (
    DGC,
    DeMo,
    DiLoCo,
    EFSign,
    GlobalAdamW,
    GlobalLion,
    PowerSGD,
    SignMomentum,
    Signum,
    SparseLoCo,
    StreamingDiLoCo,
    TernGrad,
)
from lioncub.tools.study.ideas import CautiousLion, CertainLion, FanInLion, FeedbackLion, OrthogonalLion
from lioncub.tools.study.lions import VirtualLion
from lioncub.tools.study.method import Method
from lioncub.tools.study.records import Spec
from lioncub.tools.study.tasks import Family

Named = Sequence[tuple[str, Tensor]]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A method that runs can be made with."""

    label: str
    family: Family
    build: Callable[[Named, Spec], Method]
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
    **options: Any,
) -> Entry:
    """A setting of lioncub's optimizer."""

    def build(named: Named, spec: Spec) -> Method:
        given = {"weight_decay": spec.weight_decay, "seed": spec.seed, "watch": True} | lion_memory(spec) | options
        return kind(named, spec.workers, codec=codec, **given)

    return Entry(label=label, family="lion", build=build)


def float_4(what: str, kind: type[VirtualLion] = VirtualLion, **options: Any) -> Entry:
    """Four bits on the float grid, with something else about them."""
    return lion(f"4 bits, float{what and f', {what}'}", Levels(4, grid="float"), kind=kind, **options)


SYNC_16 = MomentumSync(every=16)


def baseline(
    label: str,
    family: Family,
    method: Callable[..., Method],
    of_run: Callable[[Named, Spec], dict[str, Any]] = lambda *_: {},
    memories: tuple[str, ...] = (),
    **options: Any,
) -> Entry:
    """Somebody else's method; ``of_run``: the options that differ from run to run."""

    def build(named: Named, spec: Spec) -> Method:
        given = {"weight_decay": spec.weight_decay, "seed": spec.seed} | options | of_run(named, spec)
        return method([param for _, param in named], spec.workers, **given)

    return Entry(label=label, family=family, build=build, memories=memories)


BETA2S = (0.999, 0.99, 0.98, 0.95)


def adamw(
    label: str, method: Callable[..., Method], beta2: float = 0.999, *, with_names: bool = False, **options: Any
) -> Entry:
    """Somebody else's method with AdamW inside; its β2 is searched, beginning with the one that is published.

    ``with_names``: the method is told the parameters' names.
    """

    def of_run(named: Named, spec: Spec) -> dict[str, Any]:
        names = {"names": [name for name, _ in named]} if with_names else {}
        return {"betas": (0.9, float(spec.memory or beta2))} | names

    others = tuple(str(value) for value in BETA2S if value != beta2)
    return baseline(label, "adamw", method, of_run, others, **options)


BASELINES: dict[str, Entry] = {
    # with the memory that ours has
    "lion": baseline("global Lion", "lion", GlobalLion, lambda _, spec: lion_memory(spec), memory="growing"),
    "adamw": adamw("global AdamW", GlobalAdamW),
    "adamw-bf16": adamw("global AdamW, bfloat16 gradients", GlobalAdamW, precision="bfloat16"),
    "terngrad": baseline("TernGrad", "sgd", TernGrad),
    # with a tenth of the steps to warm up in, as its paper gives 4 epochs of 70 and more
    "dgc": baseline("DGC, 4%", "sgd", DGC, lambda _, spec: {"warmup_steps": spec.steps // 10}),
    "signum-vote": baseline("D-SIGNUM, vote", "lion", Signum),
    "ef-sign": baseline("EF-signSGD", "sgd", EFSign),
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
    "demo": baseline("DeMo", "lion", DeMo),
}

METHODS: dict[str, Entry] = {
    "exact": lion("exact averaging", Dense()),
    "vote": lion("vote", Vote()),
    "mean": lion("mean of signs", Mean()),
    "cub-2": lion("Lion Cub: 2 bits, log, selected momenta", cub_codec(2), momentum_sync=SELECTIVE),
    "cub-3": lion("Lion Cub: 3 bits, float, selected momenta", cub_codec(3), momentum_sync=SELECTIVE),
    "cub-4": lion("Lion Cub: 4 bits, float, selected momenta", cub_codec(4), momentum_sync=SELECTIVE),
    "float-4": float_4(""),
    "float-4+sync-budget": float_4("sync-budget", momentum_sync=SELECTIVE),
    "float-4+sync-16": float_4("sync-16", momentum_sync=SYNC_16),
    "vote+sync-budget": lion("vote, sync-budget", Vote(), momentum_sync=SELECTIVE),
    "vote+sync-16": lion("vote, sync-16", Vote(), momentum_sync=SYNC_16),
    "midtread-2": lion("2 bits, midtread", Levels(2, grid="midtread")),
    "midtread-4": lion("4 bits, midtread", Levels(4, grid="midtread")),
    "midtread-8": lion("8 bits, midtread", Levels(8, grid="midtread")),
    "vote-feedback": lion("vote, error feedback", Vote(), kind=FeedbackLion),
    "vote-certain": lion("vote, by certainty", Vote(), kind=CertainLion),
    "float-4-certain": float_4("by certainty", CertainLion),
    "float-4-cautious": float_4("cautious", CautiousLion),
    "float-4-orthogonal": float_4("orthogonal", OrthogonalLion),
    "float-4-fan-in": float_4("rates by fan-in", FanInLion),
    "float-4-beta1": float_4("β1 0.8", betas=(0.8, 0.99)),
    **BASELINES,
}
