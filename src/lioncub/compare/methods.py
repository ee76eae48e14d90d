"""The methods that are compared, by name."""

from __future__ import annotations

COMPUTE_ALONE = "compute"
"""The method that communicates nothing: the ideal."""

BASELINE = "ddp-lion"
"""What people have today: every ratio is taken against it."""

POWERSGD_RANK = 4

METHODS = {
    COMPUTE_ALONE: "compute alone",
    BASELINE: "DDP + Lion, float32",
    "ddp-adamw": "DDP + AdamW, float32",
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
