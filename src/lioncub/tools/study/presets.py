"""What is run: experiments of named size.

Settings are not chosen here: every method is given the same search (:mod:`lioncub.tools.study.search`), and what it
finds is used at every number of workers. Where only codecs or memories differ, all take one method's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lioncub.tools.study.settings import Setting


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Methods beside one another."""

    question: str
    methods: tuple[str, ...]
    tasks: tuple[str, ...]
    workers: tuple[int, ...] = (8,)
    seeds: tuple[int, ...] = (0, 1, 2)
    skews: tuple[float | None, ...] = (None,)
    length: float = 1.0
    """Times the task's steps."""
    settings_of: str = ""
    """The method whose setting all of them take, where only their codecs are to differ; else each has its own."""
    rates: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Learning rates by family that are all tried, instead of a search."""
    memories: tuple[str | None, ...] = (None,)
    """How long averages remember (:attr:`Spec.memory`); None: as it was found."""
    by_layer: bool = False
    """Whether agreement and divergence are shown by the kind of layer."""
    peak_memory: bool = False
    """Whether the memory that runs took is shown."""
    pictures: tuple[str, ...] = ()
    """Which of the plots documents show."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Experiments by name, and how settings are found."""

    experiments: Mapping[str, Experiment] = field(default_factory=dict)
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """By method, where they have been searched already; the others' are searched."""
    length: float = 1.0


PEOPLE = ("adamw", "lion", "vote", "cub-4")
"""What people have, and ours."""

RIVALS = (
    *("adamw-bf16", "powersgd-adamw", "dgc", "demo", "terngrad", "ef-sign", "signum-vote"),
    *("local-adamw-8", "sign-momentum-12", "diloco-8", "diloco-32", "diloco-32-float4", "streaming-32"),
    "sparse-loco-32",
)
"""Others', from 32 bits down to 0.05."""

EXPERIMENTS: dict[str, Experiment] = {
    "adamw": Experiment(
        question="Is it as good as AdamW, in five places?",
        methods=PEOPLE,
        tasks=("gpt", "resnet", "resnet-batch", "gpt-batch", "vit"),
        seeds=(0, 1, 2, 3, 4),
        pictures=("losses",),
    ),
    "others-models": Experiment(
        question="Models that are not ours, three rates for each and no search: how near is AdamW?",
        methods=("adamw", "vote", "cub-4"),
        tasks=("gpt-normal", "llama"),
        workers=(4,),
        seeds=(0, 1),
        rates={"adamw": (1e-3, 3e-3, 1e-2), "lion": (3e-4, 1e-3, 3e-3)},
    ),
    "memory": Experiment(
        question="How long should momenta remember?",
        methods=("cub-4", "vote"),
        tasks=("gpt", "resnet"),
        memories=("", "growing-5", "growing-20", "0.99", "0.95"),
    ),
    "bits": Experiment(
        question="How many bits?",
        methods=("lion", "vote", "cub-2", "cub-3", "cub-4"),
        tasks=("gpt", "resnet"),
        settings_of="cub-4",
        pictures=("bits",),
    ),
    "momentum": Experiment(
        question="Does averaging momenta earn its quarter of a bit?",
        methods=("vote", "vote+sync-budget", "float-4", "float-4+sync-budget", "float-4+sync-16"),
        tasks=("gpt", "resnet"),
        settings_of="cub-4",
    ),
    "skew": Experiment(
        question="Workers that see different classes: who copes?",
        methods=("adamw", "lion", "vote", "float-4", "vote+sync-16", "float-4+sync-16", "cub-4"),
        tasks=("resnet",),
        skews=(None, 1.0, 0.1),
    ),
    "parity": Experiment(
        question="4 to 32 workers, with what was found at 8: does parity hold?",
        methods=PEOPLE,
        tasks=("gpt", "resnet"),
        workers=(4, 8, 16, 32),
        pictures=("workers",),
    ),
    "tradeoff": Experiment(
        question="What does quality cost in bits, ours and others'?",
        methods=(*PEOPLE, "cub-2", *RIVALS),
        tasks=("gpt", "resnet", "gpt-batch", "resnet-batch"),
        pictures=("bits",),
    ),
    "ideas": Experiment(
        question="At the same bits: does anything beat the vote, and 4 bits?",
        methods=(
            *("vote", "vote-feedback", "vote-certain", "float-4", "float-4-certain", "float-4-cautious"),
            *("float-4-orthogonal", "float-4-fan-in", "float-4-beta1"),
        ),
        tasks=("gpt", "resnet"),
        settings_of="float-4",
    ),
    "fine-tuning": Experiment(
        question="A model that was trained before, on another text: as good as AdamW?",
        methods=("adamw", "vote", "cub-4"),
        tasks=("finetune",),
        workers=(4,),
        seeds=(0, 1),
        rates={"adamw": (1e-4, 3e-4, 1e-3), "lion": (3e-5, 1e-4, 3e-4)},
    ),
    "long": Experiment(
        question="Ten times the steps: does anything drift, saturate or lose precision?",
        methods=PEOPLE,
        tasks=("gpt",),
        length=10.0,
        pictures=("losses",),
    ),
    "hundreds": Experiment(
        question="Hundreds of workers, a seventh of the steps: who follows?",
        methods=PEOPLE,
        tasks=("gpt",),
        workers=(8, 256),
        seeds=(0,),
        length=1 / 7,
        peak_memory=True,
    ),
}

FOUND_ON_GPT: dict[str, Setting] = {
    "adamw": Setting(1e-2, memory="0.95", rise=0.25),
    "cub-4": Setting(3e-3, decay=1 / 3),
    "vote": Setting(3e-3),
    "lion": Setting(3e-3, decay=1 / 3, rise=0.25),
    "terngrad": Setting(0.3),
    "dgc": Setting(1.0),
    "signum-vote": Setting(1e-3),
}
"""What the full set's search found, for those who have no time to search."""

PRESETS: dict[str, Preset] = {
    "quick": Preset(
        experiments={
            "tradeoff": Experiment(
                question="What does quality cost in bits?",
                methods=tuple(FOUND_ON_GPT),
                tasks=("gpt",),
                seeds=(0,),
                pictures=("bits",),
            )
        },
        settings=FOUND_ON_GPT,
    ),
    "full": Preset(experiments=EXPERIMENTS),
    "paper": Preset(
        experiments={
            "parity": Experiment(
                question="The CIFAR-10 study of Distributed Lion: a ViT of 19 M parameters, 4 to 32 workers.",
                methods=(*PEOPLE, "cub-2", *RIVALS),
                tasks=("papers-vit",),
                workers=(4, 8, 16, 32),
            ),
            "bits": Experiment(
                question="Lion Cub's quantisation on ResNet-18.",
                methods=("lion", "vote", "cub-2", "cub-4", "midtread-2", "midtread-4", "midtread-8"),
                tasks=("papers-resnet",),
                settings_of="lion",
                by_layer=True,
            ),
        }
    ),
}
