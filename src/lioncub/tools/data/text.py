"""Text as bytes."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Text:
    """Bytes to learn from, to choose by, and to be judged on; all uint8."""

    name: str
    version: str = ""
    """Of a text that is not the same everywhere."""
    train: Tensor
    validation: Tensor
    test: Tensor
