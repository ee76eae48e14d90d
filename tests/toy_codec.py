"""A codec from outside the library, in one file: what CONTRIBUTING.md tells an author to do.

It votes with weight 1 to 4 by the quarter of max|u| an element falls in, and has no casting voter: zero sums go down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lioncub.codecs.sign_magnitude import SignMagnitude
from lioncub.kernels.layout import Layout
from lioncub.reference import alternating_sign


def _quarter(u: Tensor) -> Tensor:
    largest = u.abs().amax()
    return torch.where(u == 0, 0, u.abs() / largest * 4).clamp(max=3).floor()


@dataclass(frozen=True)
class Sixth(SignMagnitude):
    """The sixth codec."""

    casting = False
    ternary = False
    magnitudes = (1, 2, 3, 4)

    def indices(self, u: Tensor, layout: Layout) -> Tensor:
        parts = [_quarter(u[start : start + n]) for start, n in zip(layout.starts, layout.lengths, strict=True)]
        padding = u.new_zeros(layout.padded_numel - layout.numel)
        return torch.cat([*parts, padding]).to(torch.uint8)


def sixth_reference(u: Tensor, t: int, voters: Sequence[int]) -> Tensor:
    sign = torch.where(u == 0, alternating_sign(u.shape[1], t), torch.sign(u).to(torch.int64))
    weight = torch.stack([_quarter(row) for row in u]).to(torch.int64) + 1
    return torch.where((sign * weight)[list(voters)].sum(0) > 0, 1.0, -1.0)
