"""``make step-size``: the Python files and functions that one step of LionCub on two workers runs through.

Counted on one of the workers, in all its threads: forward, backward with its hooks, and ``optimizer.step()``, once
everything that happens at the first steps only has happened. Functions are the library's own with a name: no
comprehensions, no lambdas, and no methods that dataclasses generate.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import lioncub
from tests.support.cluster import Cluster

PACKAGE = Path(lioncub.__file__).parent
WARM_UP_STEPS = 3
MOST_FILES, MOST_FUNCTIONS = 16, 90
"""What is aimed at."""

Functions = dict[str, list[str]]
"""Names of functions by file, in the order of their first calls."""


def functions_of_a_step(rank: int, group: dist.ProcessGroup) -> Functions:
    """What this worker calls in one step."""
    found: defaultdict[str, dict[str, None]] = defaultdict(dict)
    counting = threading.Event()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and counting.is_set() and not code.co_name.startswith("<"):
            path = Path(code.co_filename)
            if path.is_relative_to(PACKAGE):
                found[str(path.relative_to(PACKAGE))][getattr(code, "co_qualname", code.co_name)] = None

    threading.setprofile(note)  # threads that live longer than a step are started with it
    sys.setprofile(note)
    try:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(40, 60), nn.ReLU(), nn.Linear(60, 40))
        optimizer = lioncub.LionCub(model.named_parameters(), process_group=group, bucket_numel=1000)
        for step in range(WARM_UP_STEPS + 1):
            if step == WARM_UP_STEPS:
                dist.barrier(group)
                counting.set()
            optimizer.zero_grad()
            model(torch.ones(3, 40) + rank).square().mean().backward()
            optimizer.step()
    finally:
        counting.clear()
        sys.setprofile(None)
        threading.setprofile(None)
    return {file: list(functions) for file, functions in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.step_size", description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail where it is more than is aimed at")
    options = parser.parse_args()
    workers = Cluster(2, sizes=(2,))
    try:
        functions, _ = workers.run(2, functions_of_a_step)
    finally:
        workers.close()
    for file, names in functions.items():
        print(f"{file} ({len(names)}): {', '.join(names)}")
    num_functions = sum(map(len, functions.values()))
    print(f"{len(functions)} files (aim: {MOST_FILES}), {num_functions} functions (aim: {MOST_FUNCTIONS})")
    return int(options.check and (len(functions) > MOST_FILES or num_functions > MOST_FUNCTIONS))


if __name__ == "__main__":
    from tests.support import step_size  # workers import its functions by this name

    sys.exit(step_size.main())
