"""Global Lion: the update vector itself, in full or half precision. The baseline, and what nodes use inside."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lioncub import kernels
from lioncub.codecs.base import Codec
from lioncub.errors import ConfigError
from lioncub.kernels import Direction, Encoded, UpdateVector
from lioncub.kernels.layout import BLOCK, Ballot, Layout


@dataclass(frozen=True)
class Dense(Codec):
    """The update vector in ``dtype`` both ways, added in float32 in rank order; Δ = sign(Σ u_i), with sign(0) = 0."""

    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        if self.dtype not in (torch.float32, torch.bfloat16):
            raise ConfigError(f"Dense({self.dtype}): choose torch.float32 or torch.bfloat16")

    @property
    def sum_dtype(self) -> torch.dtype:  # type: ignore[override]
        return self.dtype

    @property
    def up_block_bytes(self) -> int:
        return BLOCK * self.dtype.itemsize

    def down_block_bytes(self, num_voters: int) -> int:
        return self.up_block_bytes

    def summand(self, num_voters: int) -> Codec | None:
        return self

    def encode(self, u: Tensor, layout: Layout, step: int) -> Tensor:
        return u.to(self.dtype).view(torch.uint8).view(layout.blocks, -1)

    def encode_update(self, u: UpdateVector, step: int) -> Encoded:
        return kernels.encode_values(u, self.dtype)

    def values(self, payload: Tensor) -> Tensor:
        """The numbers of a payload, float32 ``[blocks · 64]``."""
        return payload.contiguous().view(self.dtype).view(-1).to(torch.float32)

    def combine(self, payloads: Tensor, ballot: Ballot) -> Tensor:
        total = torch.zeros(payloads.shape[1] * BLOCK, dtype=torch.float32, device=payloads.device)
        for span in ballot.spans:
            part = slice(span.start, span.stop)
            for nth, worker in enumerate(span.voters):
                value = payloads[worker].view(self.dtype).view(-1)[part]
                if nth == 0:  # not 0 + value: that would turn -0.0 into 0.0
                    total[part] = value
                else:
                    total[part] += value
        return self.encode(total, Layout((total.numel(),), 1), ballot.step)

    def mean(self, combined: Tensor, ballot: Ballot) -> Tensor:
        """The average over the voters, 0 where there are none."""
        total = self.values(combined).clone()
        for span in ballot.spans:
            total[span.start : span.stop].div_(max(len(span.voters), 1))
        return total

    def direction(self, combined: Tensor, ballot: Ballot) -> Direction:
        return Direction("sign-of", combined, self.dtype)

    def decode(self, combined: Tensor, ballot: Ballot) -> Tensor:
        return torch.sign(self.values(combined))

    def votes(self, payload: Tensor) -> Tensor:
        return torch.sign(self.values(payload))
