"""Marks that fill the width they are given: bars and lines over time, in characters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

EIGHTHS = " ▏▎▍▌▋▊▉█"
LEVELS = "▁▂▃▄▅▆▇"


@dataclass(frozen=True)
class Bar:
    """Shares of the width, one after another; the last ends to an eighth of a character, in front of a track."""

    shares: Sequence[tuple[float, str]]
    """Each with its style."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, end = options.max_width, 0.0
        bar = Text(no_wrap=True)
        for share, style in self.shares:
            end = min(end + max(share, 0.0), 1.0)
            bar.append(EIGHTHS[-1] * (int(end * width) - len(bar)), style)
        rest = round((end * width - len(bar)) * 8)
        if end > 0 and (rest or not len(bar)):
            bar.append(EIGHTHS[max(rest, 1)], self.shares[-1][1])
        yield bar.append("╌" * (width - len(bar)), "bright_black")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(8, options.max_width)


@dataclass(frozen=True)
class Spark:
    """Values over time, the newest on the right; neighbours are averaged where there are more than fit."""

    values: Sequence[float]
    style: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(spark(self.values, options.max_width), self.style, no_wrap=True)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(8, options.max_width)


def spark(values: Sequence[float], width: int) -> str:
    """Heights between the least and the largest value; a gap for what is not finite."""
    bins = min(len(values), width)
    cuts = [len(values) * i // bins for i in range(bins + 1)] if bins else []
    means = [fmean(values[start:stop]) for start, stop in pairwise(cuts)]
    finite = [value for value in means if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    scale = (len(LEVELS) - 1) / (high - low) if high > low else 0.0
    return "".join(LEVELS[round((value - low) * scale)] if math.isfinite(value) else " " for value in means)
