"""`lioncub doctor`: the kernels and the transport that this machine uses, and why it does not use the others."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version

import torch
import torch.distributed as dist
from rich.console import Console

from lioncub import kernels
from lioncub.kernels import native
from lioncub.kernels.dispatch import body_name
from lioncub.tools.reporting.grid import Grid
from lioncub.tools.reporting.machine import machine
from lioncub.transport import sockets

COMPILERS = ("c++", "g++", "clang++")
OTHER_DEVICE = {"cpu": {"triton": "for CUDA and ROCm tensors"}, "cuda": {"native": "for CPU tensors"}}


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The facts about this installation. An empty string: absent."""

    machine: dict[str, str | int]
    threads: int
    cuda: str  # the device's name
    bodies: dict[str, str]  # why each cannot be used, "" where it can
    used: dict[str, str]  # the body for tensors of each kind of device
    native: dict[str, str]
    backends: tuple[str, ...]  # of torch.distributed
    no_mesh: str  # why messages between CPUs need a backend, "" where they do not
    triton: str
    compiler: str
    hint: str


def examine() -> Diagnosis:
    bodies = kernels.bodies()
    compiler = next((found for name in COMPILERS if (found := shutil.which(name))), "")
    return Diagnosis(
        machine=machine(),
        threads=torch.get_num_threads(),
        cuda=torch.cuda.get_device_name() if torch.cuda.is_available() else "",
        bodies=bodies,
        used={kind: body_name(torch.device(kind), torch.float32) for kind in OTHER_DEVICE},
        native=native.describe(),
        backends=backends(),
        no_mesh=sockets.why_not(),
        triton=installed("triton") or installed("pytorch-triton-rocm"),
        compiler=compiler,
        hint=hint(bodies["native"], compiler),
    )


def backends() -> tuple[str, ...]:
    """torch.distributed's backends that this build of torch has."""
    if not dist.is_available():
        return ()
    built = {
        "gloo": dist.is_gloo_available,
        "nccl": dist.is_nccl_available,
        "mpi": dist.is_mpi_available,
        "ucc": dist.is_ucc_available,
    }
    return tuple(name for name, available in built.items() if available())


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def hint(problem: str, compiler: str) -> str:
    """The remedy for missing native kernels; "" where they are there."""
    if not problem:
        return ""
    again = (
        "install lioncub again: pip install --force-reinstall --no-deps --no-cache-dir -v, and what it came from (-v: "
        "a build that fails says why)"
    )
    if compiler:
        return f"CPU tensors take the slower torch kernels: {problem}. There is a compiler, {compiler}: {again}."
    return (
        f"CPU tensors take the slower torch kernels: {problem}. Get a C++ compiler (apt install g++, dnf install "
        f"gcc-c++, or xcode-select --install), then {again}."
    )


def show(diagnosis: Diagnosis, console: Console) -> None:
    console.print(kernel_grid(diagnosis).to_rich())
    for name, value in facts(diagnosis).items():
        console.print(f"{name:<24}{value}", highlight=False, markup=False, soft_wrap=True)
    if diagnosis.hint:
        console.print(f"\n{diagnosis.hint}", highlight=False, markup=False, soft_wrap=True)


def kernel_grid(diagnosis: Diagnosis) -> Grid:
    """Every body, and for tensors of each kind of device whether it is used, or why not."""
    rows = [[name, *(_state(name, kind, diagnosis) for kind in OTHER_DEVICE)] for name in sorted(diagnosis.bodies)]
    note = "Parameters of float64 take torch everywhere."
    return Grid("Kernels", ["body", "CPU tensors", "CUDA and ROCm tensors"], rows, note, num_texts=3)


def _state(body: str, kind: str, diagnosis: Diagnosis) -> str:
    if diagnosis.used[kind] == body:
        return "used" if kind == "cpu" or diagnosis.cuda else "would be used: there is no device"
    return OTHER_DEVICE[kind].get(body) or diagnosis.bodies[body] or f"not needed: {diagnosis.used[kind]} is faster"


def facts(diagnosis: Diagnosis) -> Mapping[str, str]:
    about = diagnosis.machine
    return {
        "lioncub": f"{about['lioncub']} {about['commit']}".strip(),
        "python": str(about["python"]),
        "torch": f"{about['torch']}, {diagnosis.threads} threads",
        "processor": f"{about['cpu']}, {about['cores']} cores",
        **{f"native {name}": value for name, value in diagnosis.native.items()},
        "CUDA or ROCm": diagnosis.cuda or "no device",
        "triton": diagnosis.triton or "not installed",
        "distributed": ", ".join(diagnosis.backends) or "not in this build of torch",
        "CPU messages": f"by the backend: {diagnosis.no_mesh}" if diagnosis.no_mesh else "by sockets",
        "compiler": diagnosis.compiler or f"none of {', '.join(COMPILERS)} on PATH",
    }


def run_doctor(*, as_json: bool, console: Console | None = None) -> None:
    """Examine the installation and print the facts."""
    diagnosis = examine()
    console = Console() if console is None else console
    if as_json:
        text = json.dumps(asdict(diagnosis), indent=2)
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    else:
        show(diagnosis, console)
