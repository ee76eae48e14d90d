"""Labelled images."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Images:
    """Images ``[N, 3, height, width]`` of uint8, and their classes ``[N]`` of int64."""

    name: str
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
