"""Jobs of text on a text that needs no file."""

from __future__ import annotations

import torch

from lioncub.tools.data.text import Text
from lioncub.tools.jobs import JOBS
from lioncub.tools.jobs.text import TextJob


def text_job(name: str = "gpt-1m") -> TextJob:
    """A text in which each byte tells the next."""
    text = (torch.arange(20_000) % 251).to(torch.uint8)
    parts = Text(name="made", train=text[:15_000], validation=text[15_000:17_500], test=text[17_500:])
    recipe = JOBS[name]
    return TextJob(
        name=name, data="made", build=recipe.build, text=parts, lr=recipe.lr, adamw_lr=recipe.adamw_lr, weight_decay=0.1
    )
