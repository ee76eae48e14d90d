"""A machine without a compiler installs lioncub and works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.slow

SOURCES = ("pyproject.toml", "CMakeLists.txt", "README.md", "LICENSE", "native", "src")

STEP = """
import torch, lioncub
from lioncub import kernels

assert "not built" in kernels.bodies()["native"], kernels.bodies()
param = torch.nn.Parameter(torch.ones(3))
param.grad = torch.tensor([1.0, -1.0, 0.0])
lioncub.LionCub([param])
lioncub.Lion([param], lr=0.5, memory="constant").step()
assert param.tolist() == [0.5, 1.5, 1.0], param
"""


def test_without_a_compiler_the_wheel_is_pure_and_works(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        else:
            shutil.copy(source, tree / name)
    none = shutil.which("false")
    assert none
    without = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"CC": none, "CXX": none}
    pip = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-cache-dir",
        "-w",
        str(tmp_path),
        str(tree),
    ]
    subprocess.run(pip, env=without, check=True, timeout=240)
    (wheel,) = tmp_path.glob("lioncub-*.whl")
    assert wheel.name.endswith("-none-any.whl")
    with ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if name.endswith(".so")]
        archive.extractall(tmp_path / "installed")
    # -S: the other packages are found, but not what leads to the tree under test.
    found = {**without, "PYTHONPATH": os.pathsep.join([str(tmp_path / "installed"), sysconfig.get_path("purelib")])}
    step, doctor = (
        subprocess.run(
            [sys.executable, "-S", *words],
            env=found,
            cwd=tmp_path,
            check=True,
            timeout=120,
            capture_output=True,
            text=True,
        )
        for words in (["-c", STEP], ["-m", "lioncub", "doctor"])
    )
    assert step.stderr.count("RuntimeWarning") == 1
    assert "slower kernels: the C++ kernels were not built when lioncub was installed. `lioncub doctor`" in step.stderr
    assert "not built" in " ".join(doctor.stdout.split())
    assert doctor.stderr == ""
