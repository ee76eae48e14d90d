"""Imports at run time: the library works without the packages of the tools, the command line without those of pages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest
import torch
from typer.testing import CliRunner

import lioncub
from lioncub.kernels import dispatch, native
from tests.support.comparison_records import cell

OF_TOOLS = ("jinja2", "plotly", "rich", "typer")
OF_PAGES = ("jinja2", "plotly")
OTHERS = ("lioncub.integrations", "lioncub.kernels.triton_kernels")
"""Modules for packages that need not be here."""


Block = Callable[[tuple[str, ...]], None]


@pytest.fixture
def block() -> Iterator[Block]:
    """Packages that cannot be imported, while nothing of lioncub has been, but for what is in C++."""
    before = dict(sys.modules)

    def blocking(packages: tuple[str, ...]) -> None:
        for name in list(sys.modules):
            top, last = name.partition(".")[0], name.rpartition(".")[2]
            if top in packages or (top == "lioncub" and not last.startswith("_")):
                del sys.modules[name]
        for name in packages:
            sys.modules[name] = None  # type: ignore[assignment]

    yield blocking
    sys.modules.clear()
    sys.modules.update(before)


def library() -> Iterator[str]:
    """Every module outside lioncub.tools."""
    for module in walk_packages(lioncub.__path__, "lioncub."):
        if not module.name.startswith(("lioncub.tools", "lioncub.__main__", *OTHERS)):
            yield module.name


def test_the_library_imports_no_package_of_the_tools(block: Block) -> None:
    names = list(library())
    assert len(names) > 60
    block(OF_TOOLS)
    for name in names:
        import_module(name)
    imported = [name for name in sys.modules if name.startswith("lioncub.tools")]
    assert imported == []


def test_without_plotly_all_commands_but_those_that_draw_work(block: Block, tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    records.write_text(f"{cell('vote').to_json()}\n{cell('ddp-lion').to_json()}\n")
    block(OF_PAGES)
    app = import_module("lioncub.tools.cli").app

    def said(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, words, catch_exceptions=False)
        assert result.exit_code == code, result.output
        return " ".join(result.output.split())

    assert "compare" in said("--help")
    assert json.loads(said("doctor", "--json"))["used"]["cpu"]
    assert "true" in said("lab", "--dry-run", "--", "true")
    assert "[OPTIONS]" in said("checkpoint", "verify", "--help")
    report = said("report", str(records), code=2)
    assert "Distributed Lion vote" in report
    assert report.endswith("Pages need jinja2 and plotly: pip install 'lioncub[report]'")
    assert not (tmp_path / "report.html").exists()


def test_the_package_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "lioncub", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=dict(os.environ))
    assert done.stdout.strip() == lioncub.__version__


def test_slow_kernels_are_warned_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    param = torch.nn.Parameter(torch.ones(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lioncub.Lion([param])  # the kernels in C++ are here
    dispatch.warn_without_native.cache_clear()
    monkeypatch.setattr(native, "why_not", lambda: "the C++ kernels were not built")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        lioncub.Lion([param])
        lioncub.LionCub([param])
    (warning,) = map(str, (each.message for each in seen))
    assert re.match("lioncub computes with slower kernels: .* not built.*`lioncub doctor`", warning)
    dispatch.warn_without_native.cache_clear()
