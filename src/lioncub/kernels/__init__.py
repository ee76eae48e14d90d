"""The passes over memory: one signature each, several bodies, all bit-identical.

* :mod:`~lioncub.kernels.torch_ops`: torch and numpy operations; any device, no compiler;
* :mod:`~lioncub.kernels.native`: C++ for CPU tensors, where it could be built;
* :mod:`~lioncub.kernels.triton_ops`: Triton for CUDA and ROCm tensors, where Triton is installed.
"""

from lioncub.kernels.dispatch import (
    apply_,
    bodies,
    body_for,
    checksums,
    count_matches,
    count_ones,
    encode_levels,
    encode_signs,
    encode_values,
    fingerprint,
    lion_,
    majority,
    sample,
    using,
    warn_without_native,
)
from lioncub.kernels.operands import (
    Cut,
    Direction,
    Encoded,
    Move,
    Noise,
    Part,
    Quantiser,
    Stride,
    Tally,
    UpdateVector,
)
from lioncub.kernels.rounding import noise_key
from lioncub.kernels.torch_ops import direction_values

__all__ = [
    "Cut",
    "Direction",
    "Encoded",
    "Move",
    "Noise",
    "Part",
    "Quantiser",
    "Stride",
    "Tally",
    "UpdateVector",
    "apply_",
    "bodies",
    "body_for",
    "checksums",
    "count_matches",
    "count_ones",
    "direction_values",
    "encode_levels",
    "encode_signs",
    "encode_values",
    "fingerprint",
    "lion_",
    "majority",
    "noise_key",
    "sample",
    "using",
    "warn_without_native",
]
