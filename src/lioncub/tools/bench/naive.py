"""A straightforward encoding in torch operations, with which the kernels are compared."""

from __future__ import annotations

import torch
from torch import Tensor

from lioncub.kernels import Encoded, Part, UpdateVector
from lioncub.kernels.bits import pack_bits_anywhere


def encode_signs(u: UpdateVector) -> Encoded:
    """Whole tensors at every stage: u, then u > 0, then eight shifted bits to a byte, then a look at every element.

    Zeros are sent as minus and parts without a gradient are not known: less than the kernels do.
    """
    parts = [_values(part) for part in u.parts]
    values = parts[0] if len(parts) == 1 else torch.cat(parts)
    values = torch.nn.functional.pad(values, (0, u.layout.padded_numel - len(values)))
    payload = pack_bits_anywhere(values > 0).view(u.layout.blocks, -1)
    return Encoded(payload, bool(torch.isfinite(values).all()))


def _values(part: Part) -> Tensor:
    if part.m is None or part.g is None:
        raise ValueError("every part needs a momentum and a gradient")
    return (part.m * part.beta).add_(part.g * part.gain).view(-1)
