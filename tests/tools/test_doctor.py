"""``lioncub doctor`` with native kernels and without."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from lioncub.kernels import native, triton_ops
from lioncub.tools import doctor
from lioncub.tools.cli import app
from lioncub.tools.doctor import Diagnosis, examine, hint, kernel_grid
from lioncub.transport import sockets

DESCRIPTION = {"instruction set": "avx512", "compiler": "GNU 12.2.0"}
NOT_BUILT = "the C++ kernels are not built (no module)"


def see(monkeypatch: pytest.MonkeyPatch, problem: str, compiler: str | None = "/usr/bin/c++") -> None:
    """Make native kernels be there, or not."""
    monkeypatch.setattr(native, "why_not", lambda: problem)
    monkeypatch.setattr(native, "describe", lambda: {} if problem else DESCRIPTION)
    monkeypatch.setattr(shutil, "which", lambda name: compiler)


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["doctor", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_with_native_kernels_all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, "")
    text = printed()
    assert "native instruction set  avx512" in text
    assert "native compiler         GNU 12.2.0" in text
    assert "not needed: native is faster" in text
    assert "gloo" in text
    assert torch.__version__ in text
    assert "slower" not in text


def test_without_native_kernels_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, NOT_BUILT, compiler=None)
    text = printed()
    assert NOT_BUILT in text.replace("\n", " ")
    assert "instruction set" not in text
    assert "none of c++, g++, clang++ on PATH" in text
    assert "apt install g++" in text
    assert "pip install" in text


def test_with_a_compiler_it_does_not_ask_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, NOT_BUILT)
    assert "There is a compiler, /usr/bin/c++" in printed()
    assert "apt install" not in printed()
    assert hint("", "") == ""


def test_json_is_the_whole_diagnosis(monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, "")
    found = json.loads(printed("--json"))
    assert found["used"]["cpu"] == "native"
    assert found["native"] == DESCRIPTION
    assert found["hint"] == ""
    assert found["machine"]["cores"] >= 1
    assert set(found["bodies"]) == {"native", "triton", "torch"}


def states(diagnosis: Diagnosis) -> dict[str, list[str]]:
    return {name: cells for name, *cells in kernel_grid(diagnosis).rows}


def test_every_body_is_used_or_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, NOT_BUILT)
    monkeypatch.setattr(triton_ops, "why_not", lambda: "there is no device")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert states(examine()) == {
        "native": [NOT_BUILT, "for CPU tensors"],
        "torch": ["used", "would be used: there is no device"],
        "triton": ["for CUDA and ROCm tensors", "there is no device"],
    }


def test_with_a_gpu_triton_is_used_there(monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, "")
    monkeypatch.setattr(triton_ops, "why_not", lambda: "")
    diagnosis = replace(examine(), cuda="A GPU")
    assert diagnosis.used == {"cpu": "native", "cuda": "triton"}
    assert states(diagnosis)["triton"] == ["for CUDA and ROCm tensors", "used"]
    assert states(diagnosis)["torch"] == ["not needed: native is faster", "not needed: triton is faster"]


def test_a_torch_without_distributed_has_no_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "gloo" in doctor.backends()
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    assert doctor.backends() == ()
    assert doctor.installed("no-such-package") == ""


def test_who_carries_messages_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, "")
    assert doctor.facts(examine())["CPU messages"] == "by sockets"
    monkeypatch.setattr(sockets, "_problem", NOT_BUILT)
    assert doctor.facts(examine())["CPU messages"] == f"by the backend: {NOT_BUILT}"
