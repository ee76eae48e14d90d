"""What training on CPUs imports: torch's compiler and Triton are not among it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tiers import slow
from tests.support.torchrun import environment, script

TRAIN = """
import sys
import torch
from torch import nn
import lioncub
from lioncub import checkpoint

with lioncub.distributed.init("gloo") as world:
    model = nn.Linear(3, 1)
    optimizer = getattr(lioncub, sys.argv[1])(model.named_parameters())
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(3)).sum().backward()
        optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    checkpoint.save(sys.argv[2], model, optimizer, 2)
    checkpoint.load(sys.argv[2], model, optimizer)
print([name for name in ("torch._dynamo", "torch._inductor", "triton", "sympy") if name in sys.modules])
"""


@pytest.mark.parametrize("name", ["DistributedLion", *(pytest.param(name, marks=slow) for name in ("Lion", "LionCub"))])
def test_no_compiler_is_imported(tmp_path: Path, name: str) -> None:
    command = [sys.executable, script(tmp_path / "train.py", TRAIN), name, str(tmp_path / "run")]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
