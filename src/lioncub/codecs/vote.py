"""Distributed Lion's two codecs: majority vote and averaging of signs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lioncub import kernels
from lioncub.codecs.base import Codec, decoded
from lioncub.codecs.sign_magnitude import SignMagnitude
from lioncub.errors import ConfigError
from lioncub.kernels import Cut, Direction, Encoded, UpdateVector
from lioncub.kernels.bits import planes
from lioncub.kernels.layout import BLOCK, Ballot, Layout


@dataclass(frozen=True)
class Vote(SignMagnitude):
    """Majority vote, Δ = sign(Σ sign(u_i)): 1 bit up, 1 bit down.

    ``ties="cast"``: with an even number of votes a different worker each step votes twice.
    ``ties="zero"``: a tie moves nothing, as sign(0) = 0 in the paper; a second bit on the way back.
    ``zeros="alternate"``: u = 0 is sent as ±1, alternating with step and coordinate.
    ``zeros="abstain"``: u = 0 is sent as an abstention, and what nobody votes on does not move; a second bit each way.
    """

    ties: Literal["cast", "zero"] = "cast"
    zeros: Literal["alternate", "abstain"] = "alternate"

    def __post_init__(self) -> None:
        if self.ties not in ("cast", "zero"):
            raise ConfigError(f'Vote(ties={self.ties!r}): choose "cast" or "zero"')
        if self.zeros not in ("alternate", "abstain"):
            raise ConfigError(f'Vote(zeros={self.zeros!r}): choose "alternate" or "abstain"')

    @property
    def magnitudes(self) -> tuple[int, ...]:
        return (0, 1) if self.zeros == "abstain" else (1,)

    @property
    def casting(self) -> bool:
        return self.ties == "cast"

    @property
    def ternary(self) -> bool:
        return self.ties == "zero" or self.zeros == "abstain"

    def encode(self, u: Tensor, layout: Layout, step: int) -> Tensor:
        return self.encode_update(UpdateVector.of(u, layout), step).payload

    def encode_update(self, u: UpdateVector, step: int) -> Encoded:
        return kernels.encode_signs(u, step, abstain=self.zeros == "abstain")


@dataclass(frozen=True)
class Mean(Codec):
    """Averaging, Δ = (1/V) Σ sign(u_i): 1 bit up, the number of + votes down in ⌈log2(n+1)⌉ bits."""

    @property
    def up_block_bytes(self) -> int:
        return BLOCK // 8

    def down_block_bytes(self, num_voters: int) -> int:
        return BLOCK // 8 * num_voters.bit_length()

    def encode(self, u: Tensor, layout: Layout, step: int) -> Tensor:
        return self.encode_update(UpdateVector.of(u, layout), step).payload

    def encode_update(self, u: UpdateVector, step: int) -> Encoded:
        return kernels.encode_signs(u, step, abstain=False)

    def combine(self, payloads: Tensor, ballot: Ballot) -> Tensor:
        return kernels.count_ones(payloads, ballot)

    def direction(self, combined: Tensor, ballot: Ballot) -> Direction:
        return Direction("counts", combined)

    def decode(self, combined: Tensor, ballot: Ballot) -> Tensor:
        return decoded(self.direction(combined, ballot), ballot)

    def votes(self, payload: Tensor) -> Tensor:
        (bits,) = planes(payload)
        return bits.to(torch.int8).mul_(2).sub_(1)

    def count_matches(self, payload: Tensor, combined: Tensor, ballot: Ballot, cuts: Sequence[Cut]) -> int:
        return kernels.count_matches(payload, self.direction(combined, ballot), cuts, own_zeros=False)
