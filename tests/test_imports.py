"""What is imported: by training on CPUs, and by the arithmetic. The order of the layers is import-linter's to check."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import lioncub
from tests.support.tiers import slow
from tests.support.torchrun import environment, script

PACKAGE = Path(lioncub.__file__).parent
ARITHMETIC = ("codecs", "kernels", "momentum", "reference.py", "rule.py")

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
with lioncub.live.Monitor(optimizer, records=sys.argv[2] + "/live.jsonl") as monitor:
    monitor.step()
unwanted = ("torch._dynamo", "torch._inductor", "triton", "sympy", "rich", "typer", "plotly", "jinja2", "lioncub.tools")
print([name for name in unwanted if name in sys.modules])
"""


@pytest.mark.parametrize("name", ["DistributedLion", *(pytest.param(name, marks=slow) for name in ("Lion", "LionCub"))])
def test_training_imports_no_compiler_and_nothing_that_draws(tmp_path: Path, name: str) -> None:
    command = [sys.executable, script(tmp_path / "train.py", TRAIN), name, str(tmp_path / "run")]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_arithmetic_imports_no_process_group() -> None:
    """import-linter sees packages from outside as a whole: torch, but not torch.distributed."""
    files = [
        file for name in ARITHMETIC for file in ([PACKAGE / name] if "." in name else (PACKAGE / name).glob("*.py"))
    ]
    assert len(files) > 15
    for file in files:
        names = set(_names(ast.parse(file.read_text(encoding="utf-8"))))
        assert not {name for name in names if name.startswith("torch.distributed")}, file


def test_the_library_imports_its_parts_from_where_they_are() -> None:
    """The names of lioncub/__init__.py are for users: an import of one of them would hide a layer from the contract."""
    for file in PACKAGE.rglob("*.py"):
        if file.relative_to(PACKAGE).parts[0] == "tools":
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "lioncub":
                values = [each.name for each in node.names if find_spec(f"lioncub.{each.name}") is None]
                assert not values, f"{file}: from lioncub import {', '.join(values)}"


def _names(tree: ast.AST) -> Iterator[str]:
    """Modules that are imported, members of modules too, and attributes of torch."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{node.value.id}.{node.attr}"
