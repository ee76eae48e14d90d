"""Seeds that are printed, and can be set: ``LIONCUB_FAULT_SEED=… make test-faults`` replays a failure."""

from __future__ import annotations

import os
import random


def chance(purpose: str) -> random.Random:
    """Numbers for one test."""
    seed = os.environ.get("LIONCUB_FAULT_SEED") or str(random.SystemRandom().randrange(2**32))
    print(f"LIONCUB_FAULT_SEED={seed} ({purpose})")
    return random.Random(f"{seed} {purpose}")
