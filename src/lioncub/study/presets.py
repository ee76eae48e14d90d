"""What is run: experiments of named size. A preset says which tasks, how many seeds, and what each experiment compares.

Learning rates are not chosen here: every method is given the same search, over its family's grid in
:mod:`lioncub.study.tasks` and beyond its ends where the best is there, at :data:`SEARCH_WORKERS` workers with a seed
that no figure uses. The search's winner by training loss is used at every number of workers. Where codecs are compared
with one another, all take one rate.

Of the two models for images the ResNet is in most experiments: a run takes half the time of the ViT's, and it tells
methods apart that the ViT does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SEARCH_WORKERS = 8
SEARCH_SEED = 1000


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
    lr_of: str = ""
    """The method whose learning rate all of them take, where only their codecs are to differ; else each has its own."""
    lr_factors: tuple[float, ...] = (1.0,)
    """Times the learning rate that was found."""
    decay_factors: tuple[float, ...] = (1.0,)
    by_layer: bool = False
    """Whether agreement and divergence are shown by the kind of layer."""
    by_seed: bool = False
    """Whether each seed's figures are shown."""
    memory: bool = False
    """Whether the memory that runs took is shown."""
    pictures: tuple[str, ...] = ()
    """Which of the plots documents show."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Experiments by name, and how the learning rates are found."""

    experiments: Mapping[str, Experiment] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    """Learning rates by method, where they have been searched already; the others' are searched."""
    length: float = 1.0


BASELINES = ("adamw", "terngrad", "dgc", "graddrop", "signum-vote", "signum-mean", "ef-sign", "powersgd")
LIONS = ("lion", "vote", "mean", "midrise-2", "cub-2", "cub-4")
MIDRISE = tuple(f"midrise-{bits}{scale}" for bits in (2, 3, 4, 5, 8) for scale in ("", "-linf"))
LEVELS = (
    *MIDRISE,
    *(f"log-{bits}{scale}" for bits in (2, 3, 4, 5) for scale in ("", "-linf")),
    *(f"midtread-{bits}{scale}" for bits in (2, 3, 4, 5, 8) for scale in ("", "-linf")),
    *(f"float-{bits}" for bits in (2, 3, 4, 5)),
)
SYNCHRONISED = tuple(
    f"{codec}+{policy}"
    for codec in ("vote", "float-4")
    for policy in ("sync-16", "sync-64", "sync-256", "sync-embedding", "sync-budget", "sync-budget-1")
)

EXPERIMENTS: dict[str, Experiment] = {
    "default": Experiment(
        question="Is Lion Cub as good as global Lion at 8 workers, on every task?",
        methods=("lion", "vote", "cub-4", "cub-2"),
        tasks=("gpt", "vit", "resnet"),
        seeds=(0, 1, 2, 3, 4, 5),
    ),
    "confirmation": Experiment(
        question="The default was chosen with the seeds 0 to 5: does it hold with others?",
        methods=("lion", "vote", "cub-4"),
        tasks=("gpt",),
        seeds=(6, 7, 8, 9, 10, 11),
    ),
    "steadiness": Experiment(
        question="Some first weights are harder than others: who copes?",
        methods=("lion", "vote", "cub-2", "log-4", "cub", "cub-3", "float-4", "cub-4"),
        tasks=("gpt",),
        seeds=(0, 1, 2, 3, 4, 5),
        by_layer=True,
        by_seed=True,
        pictures=("agreement",),
    ),
    "parity": Experiment(
        question="Do they learn as well as global Lion, at 4 to 32 workers?",
        methods=("lion", "vote", "mean", "cub-2", "cub-4"),
        tasks=("gpt", "resnet"),
        workers=(4, 8, 16, 32),
        pictures=("workers",),
    ),
    "tradeoff": Experiment(
        question="Quality against bits: ours and the baselines of the papers.",
        methods=(*LIONS, *BASELINES),
        tasks=("gpt", "resnet"),
        pictures=("bits", "losses"),
    ),
    "bits": Experiment(
        question="How many bits, on which grid, with which scale?",
        methods=("exact", "vote", *LEVELS),
        tasks=("gpt",),
        lr_of="exact",
        by_layer=True,
        pictures=("bits", "agreement"),
    ),
    "bits-images": Experiment(
        question="The same on images, on fewer grids.",
        methods=("exact", "vote", *MIDRISE, "log-2", "log-2-linf", "log-4"),
        tasks=("vit",),
        lr_of="exact",
        by_layer=True,
        pictures=("bits", "agreement"),
    ),
    "layers": Experiment(
        question="Is it the rare tokens? Finer bits for embedding and head alone.",
        methods=("exact", "vote", "log-4", "vote-embedding-log-4", "vote-abstain"),
        tasks=("gpt",),
        lr_of="exact",
        by_layer=True,
    ),
    "ideas": Experiment(
        question="At the bits of a vote, or one more: what beats it?",
        methods=("exact", "vote", "vote-feedback", "vote-dithered", "midrise-2", "log-2"),
        tasks=("gpt", "vit"),
        lr_of="exact",
        by_layer=True,
    ),
    "momentum": Experiment(
        question="When must momenta meet, and which?",
        methods=("exact", "vote", "float-4", *SYNCHRONISED),
        tasks=("gpt", "resnet"),
        lr_of="exact",
        by_layer=True,
    ),
    "momentum-layers": Experiment(
        question="Momenta of one kind of layer, every 16 steps: which need to meet?",
        methods=("exact", "vote", "vote+sync-embedding", "vote+sync-attention", "vote+sync-mlp", "vote+sync-16"),
        tasks=("gpt",),
        lr_of="exact",
        by_layer=True,
    ),
    "ties": Experiment(
        question="What do ties and zeros do, at even and odd numbers of workers?",
        methods=("vote", "vote-zero", "vote-abstain"),
        tasks=("gpt", "resnet"),
        workers=(4, 5, 8, 9),
        lr_of="vote",
    ),
    "skew": Experiment(
        question="Workers that see different classes: does the vote suffer, and what helps?",
        methods=("lion", "vote", "mean", "float-4", "vote+sync-16", "float-4+sync-16", "cub-4"),
        tasks=("resnet",),
        skews=(None, 1.0, 0.1),
    ),
    "long": Experiment(
        question="Ten times the steps: does anything drift, saturate or lose precision?",
        methods=("lion", "vote", "midrise-2", "float-4", "float-4-half", "float-4-bf16", "float-4-bf16-stochastic"),
        tasks=("gpt",),
        seeds=(0,),
        length=10.0,
        by_layer=True,
        pictures=("losses",),
    ),
    "rates": Experiment(
        question="Which learning rate and weight decay, coming from AdamW?",
        methods=("lion", "vote", "float-4"),
        tasks=("gpt", "resnet"),
        seeds=(0,),
        lr_factors=(0.33, 1.0, 3.0),
        decay_factors=(0.1, 1.0, 10.0),
    ),
    "more-workers": Experiment(
        question="Which learning rate when the number of workers changes?",
        methods=("lion", "vote", "float-4"),
        tasks=("gpt", "resnet"),
        workers=(4, 16),
        seeds=(0,),
        lr_factors=(0.33, 1.0, 3.0),
    ),
    "beyond": Experiment(
        question="Hundreds of workers, a seventh of the steps: does the vote still follow global Lion?",
        methods=("lion", "vote", "float-4"),
        tasks=("gpt",),
        workers=(8, 64, 256, 1024),
        seeds=(0,),
        length=1 / 7,
        memory=True,
        pictures=("workers",),
    ),
}

FOUND_ON_GPT = {
    "adamw": 1e-2,
    "lion": 3e-3,
    "vote": 3e-3,
    "mean": 3e-3,
    "cub-4": 3e-3,
    "terngrad": 0.3,
    "dgc": 1.0,
    "graddrop": 0.3,
    "signum-vote": 1e-3,
}
"""The rates that the full set's search found, for those who have no time to search."""

PRESETS: dict[str, Preset] = {
    "quick": Preset(
        experiments={
            "tradeoff": Experiment(
                question="The trade-off of quality and bits, in a few minutes.",
                methods=tuple(FOUND_ON_GPT),
                tasks=("gpt",),
                seeds=(0,),
                pictures=("bits",),
            )
        },
        rates=FOUND_ON_GPT,
    ),
    "full": Preset(experiments=EXPERIMENTS),
    "paper": Preset(
        experiments={
            "parity": Experiment(
                question="The CIFAR-10 study of Distributed Lion: a ViT of 19 M parameters, 4 to 32 workers.",
                methods=(*LIONS, *BASELINES),
                tasks=("papers-vit",),
                workers=(4, 8, 16, 32),
            ),
            "bits": Experiment(
                question="Lion Cub's quantisation on ResNet-18.",
                methods=("exact", "vote", *LEVELS),
                tasks=("papers-resnet",),
                lr_of="exact",
                by_layer=True,
            ),
            "momentum": Experiment(
                question="Lion Cub's momentum synchronisation on ResNet-18.",
                methods=("exact", "vote", "float-4", *SYNCHRONISED),
                tasks=("papers-resnet",),
                lr_of="exact",
                by_layer=True,
            ),
        }
    ),
}
