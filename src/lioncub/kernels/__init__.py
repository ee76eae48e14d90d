"""The passes over memory, one signature each. Bodies: :mod:`lioncub.kernels.torch_ops`, which works anywhere."""

from lioncub.kernels.torch_ops import (
    abs_sum,
    all_finite,
    count_bits,
    fingerprint,
    in_cache,
    pack_bits,
    sign_bits,
    unpack_bits,
)

__all__ = [
    "abs_sum",
    "all_finite",
    "count_bits",
    "fingerprint",
    "in_cache",
    "pack_bits",
    "sign_bits",
    "unpack_bits",
]
