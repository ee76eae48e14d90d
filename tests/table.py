"""Every codec with its oracle: one row a codec. A new codec is one file and one row here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from lioncub import Codec, Dense, Levels, Mean, Vote, reference
from lioncub.reference import Combiner
from tests.toy_codec import Sixth, sixth_reference


@dataclass(frozen=True)
class Row:
    """A codec, what the reference says it does, and its true bits per parameter up and down for n voters."""

    codec: Codec
    combine: Combiner
    bits_up: int
    bits_down: Callable[[int], int]

    @property
    def id(self) -> str:
        return repr(self.codec)


def _levels(bits: int, scale: str = "l1", grid: str = "midrise") -> Row:
    codec = Levels(bits, scale, grid)  # type: ignore[arg-type]
    combine = partial(reference.levels, bits=bits, scale=scale, grid=grid)
    return Row(codec, combine, bits, lambda n: 2 if grid == "midtread" else 1)


ROWS = [
    Row(Vote(), reference.vote, 1, lambda n: 1),
    Row(Vote(ties="zero"), partial(reference.vote, ties="zero"), 1, lambda n: 2),
    Row(Vote(zeros="abstain"), partial(reference.vote, zeros="abstain"), 2, lambda n: 2),
    Row(Vote("zero", "abstain"), partial(reference.vote, ties="zero", zeros="abstain"), 2, lambda n: 2),
    Row(Mean(), reference.mean, 1, lambda n: n.bit_length()),
    *(_levels(bits) for bits in range(2, 9)),
    *(_levels(bits, grid="log") for bits in range(2, 6)),
    *(_levels(bits, grid="float") for bits in range(2, 6)),
    *(_levels(bits, grid="midtread") for bits in range(2, 9)),
    _levels(4, "linf"),
    _levels(4, "linf", "log"),
    _levels(4, "linf", "midtread"),
    _levels(8, "linf", "midtread"),
    Row(Dense(), reference.dense, 32, lambda n: 32),
    Row(Dense(torch.bfloat16), partial(reference.dense, dtype=torch.bfloat16), 16, lambda n: 16),
    Row(Sixth(), sixth_reference, 3, lambda n: 1),
]
