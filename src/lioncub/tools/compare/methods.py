"""The methods that are compared, by name."""

from __future__ import annotations

COMPUTE_ALONE = "compute"
"""The method that communicates nothing: the ideal."""

BASELINE = "ddp-lion"
"""The same optimizer with float32 gradients: ratios of times and bytes are taken against it."""

ADAMW = "ddp-adamw"
"""The usual method, DDP with AdamW: the reference of losses, and of ratios where the baseline was not run."""

POWERSGD_RANK = 4

METHODS = {
    COMPUTE_ALONE: "compute alone",
    BASELINE: "DDP + Lion, float32",
    ADAMW: "DDP + AdamW, float32",
    "ddp-adamw-fp16": "DDP + AdamW, fp16 hook",
    "ddp-fp16": "DDP + Lion, fp16 hook",
    "ddp-powersgd": f"DDP + Lion, PowerSGD hook, rank {POWERSGD_RANK}",
    "server": "Distributed Lion, server",
    "vote": "Distributed Lion, vote",
    "mean": "Distributed Lion, mean",
    "cub-1": "Lion Cub, 1 bit",
    "cub-2": "Lion Cub, 2 bits, mid-rise",
    "cub-4": "Lion Cub, 4 bits, float",
    "cub-8": "Lion Cub, 8 bits",
}
