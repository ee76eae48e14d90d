"""Runs of a study that nobody made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lioncub.tools.study.methods import METHODS
from lioncub.tools.study.presets import Experiment
from lioncub.tools.study.records import Run, Spec
from lioncub.tools.study.settings import Setting

EXPERIMENT = Experiment(question="Q?", methods=("lion", "vote"), tasks=("gpt",), workers=(4, 8), seeds=(0, 1))
SETTINGS = dict.fromkeys(METHODS, Setting(1e-3))

SPEC = Spec(
    task="gpt", method="vote", workers=4, seed=0, lr=1e-3, weight_decay=0.1, steps=12, examples=128
)  # fmt: skip


def made(quality: float | None = 2.0, **given: Any) -> Run:
    """A run with made-up figures."""
    spec = replace(SPEC, **{name: given.pop(name) for name in list(given) if hasattr(SPEC, name)})
    return Run(
        spec=spec, label=METHODS[spec.method].label, parameters=100, data="made", loss=quality, quality=quality,
        train_losses=(3.0, 2.5, given.pop("end", 2.0)), bits_up=1.0, bits_down=1.0, **given,
    )  # fmt: skip
