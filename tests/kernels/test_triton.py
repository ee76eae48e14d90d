"""Triton's kernels without a GPU: interpreted on CPU tensors, and compiled for three of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from lioncub.kernels import Cut, Direction, Move, Noise, Part, Quantiser, Stride, Tally, UpdateVector, triton_ops
from lioncub.kernels.layout import Ballot, Layout
from tests.support.paths import ROOT
from tests.support.tiers import slow

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
needs_compiler = pytest.mark.skipif("TRITON_INTERPRET" in os.environ, reason="this process interprets")


def test_importing_lioncub_does_not_import_triton() -> None:
    subprocess.run([sys.executable, "-c", "import lioncub, sys; assert 'triton' not in sys.modules"], check=True)


def test_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    why_not = triton_ops.why_not.__wrapped__
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(triton_ops, "find_spec", lambda name: "a spec")
    assert why_not() == "there is no CUDA or ROCm device"
    monkeypatch.setattr(triton_ops, "find_spec", lambda name: None)
    assert why_not() == "Triton is not installed"


@pytest.mark.slow
@needs_triton
def test_interpreted_kernels_equal_torch_ops() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/kernels/triton_interpreted.py"]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


# ---- compiling -----------------------------------------------------------------------------------------------------

KERNELS = [
    "add_up_ones",
    "add_up_signed",
    "chunk_sums",
    "encode_numbers",
    "encode_planes",
    "largest_magnitude",
    "lion",
    "matches",
    "mean_magnitude",
    "move",
    "row_sums",
]
TARGETS = {"sm_80": ("cuda", 80, 32), "sm_90": ("cuda", 90, 32), "gfx942": ("hip", "gfx942", 64)}
TYPES = {
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.int32: "*i32",
    torch.int64: "*i64",
    int: "i32",
    float: "fp32",
}


class Launch(NamedTuple):
    """What Triton compiles for one launch."""

    kernel: Any
    signature: dict[str, str]
    constants: dict[str, Any]
    divisible: tuple[str, ...]
    options: dict[str, Any]


def launch_of(kernel: Any, arguments: dict[str, Any]) -> Launch:
    """As Triton's own launcher: None and 1 are constants, and multiples of 16 are told apart."""
    signature, constants, divisible, options = {}, {}, [], dict(arguments)
    for parameter in kernel.params:
        name, value = parameter.name, options.pop(parameter.name)
        tells = isinstance(value, int) and not parameter.do_not_specialize
        if parameter.is_constexpr or value is None or (tells and value == 1):
            signature[name], constants[name] = "constexpr", value
            continue
        signature[name] = TYPES[value.dtype if isinstance(value, Tensor) else type(value)]
        if (value.data_ptr() if isinstance(value, Tensor) else value if tells else 1) % 16 == 0:
            divisible.append(name)
    return Launch(kernel, signature, constants, tuple(divisible), options)


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Launch]]]:
    """All that is launched when every function has been called, by the kernel's name."""
    from triton.runtime.jit import JITFunction

    recorded: dict[str, list[Launch]] = {}

    def record(kernel: Any, *, grid: tuple[int], warmup: bool, **arguments: Any) -> None:
        launch = launch_of(kernel, arguments)
        others = recorded.setdefault(kernel.fn.__name__, [])
        if launch not in others:
            others.append(launch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        patch.setattr(JITFunction, "run", record)
        encode_everything()
        combine_everything()
        move_everything()
        yield recorded


def encode_everything() -> None:
    full = Part(torch.zeros(64), torch.zeros(64), 0.9, 0.1)
    half = Part(torch.zeros(64).bfloat16(), torch.zeros(64).half(), 0.9, 0.1)
    u, v, w = (update_vector(parts) for parts in ([full], [half], [Part(torch.zeros(1)), Part()]))
    ahead = [part._replace(next_m=torch.zeros_like(part.m), next_beta=0.99, next_gain=0.01) for part in (full, half)]  # type: ignore[arg-type]
    triton_ops.encode_signs(update_vector(ahead), 0, abstain=False)
    triton_ops.encode_values(update_vector(ahead), torch.float32)
    triton_ops.encode_signs(w, 0, abstain=False)
    triton_ops.encode_signs(u, 0, abstain=True)
    triton_ops.encode_levels(u, 0, Quantiser("log", 5, "l1"))
    triton_ops.encode_levels(v, 0, Quantiser("midtread", 3, "linf"))
    triton_ops.encode_levels(v, 0, Quantiser("midrise", 2, "l1"))
    triton_ops.encode_values(u, torch.float32)
    triton_ops.encode_values(w, torch.bfloat16)


def update_vector(parts: list[Part]) -> UpdateVector:
    lengths = [1 if part.m is None else len(part.m) for part in parts]
    return UpdateVector(parts, Layout(tuple(lengths), 1), torch.float32, torch.device("cpu"))


def combine_everything() -> None:
    layout = Layout((100,), 2)
    ballot = Ballot.of(layout, 1, [(0, 1)])
    logarithmic = Tally(tuple(2**e for e in range(16)), casting=True, ternary=False)
    for tally in (Tally((1,), True, False), Tally((0, 1), True, True), Tally((0, 1, 2, 3), False, True), logarithmic):
        payloads = torch.zeros(2, layout.blocks, 8 * (1 + tally.index_bits), dtype=torch.uint8)
        triton_ops.majority(payloads, ballot, tally)
    triton_ops.count_ones(torch.zeros(2, layout.blocks, 8, dtype=torch.uint8), ballot)


def move_everything() -> None:
    noise = Noise(1, 2)
    for kind, num_bytes in (("signs", 8), ("signs", 16), ("counts", 24), ("sign-of", 256), ("values", 256)):
        direction = Direction(kind, torch.zeros(2, num_bytes, dtype=torch.uint8))  # type: ignore[arg-type]
        x, m, g = torch.zeros(64).bfloat16(), torch.zeros(64), torch.zeros(64).half()
        moves = [Move(x, 0, 0.1, 0.9, 3, m, g, 0.9, 0.1, noise), Move(m, 1, 0.1, 0.9, 3)]
        triton_ops.apply_(moves[: 2 if kind == "signs" else 1], direction)
        if kind in ("signs", "counts"):
            payload = torch.zeros(2, 16, dtype=torch.uint8)
            triton_ops.count_matches(payload, direction, [Cut(0, 100, 3)], own_zeros=kind == "signs")
    for x in (torch.zeros(64).bfloat16(), torch.zeros(7).half()):
        triton_ops.lion_([Stride(x, x.float(), x, 0.1, 0.9, 0.9, 0.1, 0.99, 0.01, noise)])


@needs_triton
@needs_compiler
def test_every_kernel_is_launched(launches: dict[str, list[Launch]]) -> None:
    from lioncub.kernels import triton_kernels

    declared = {name for name, value in vars(triton_kernels).items() if getattr(value, "do_not_specialize", None)}
    assert sorted(launches) == sorted(declared) == KERNELS


@needs_triton
@needs_compiler
@pytest.mark.parametrize("target", [pytest.param(target, marks=slow) for target in TARGETS])
@pytest.mark.parametrize("name", KERNELS)
def test_compiles(name: str, target: str, launches: dict[str, list[Launch]]) -> None:
    for launch in launches[name]:
        asm = compiled(launch, target)
        if "ptx" in asm:
            assert not re.search(r"\bfma\b|(?<!div\.rn)\.ftz|div\.(full|approx)", asm["ptx"])
        elif "divf" not in asm["ttir"]:  # this processor divides by fused multiply-adds
            assert not re.search(r"v_(pk_)?(fma|fmac|mac|mad)_f(32|64)", asm["amdgcn"])


def compiled(launch: Launch, target: str) -> dict[str, str]:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    where = {name: (k,) for k, name in enumerate(launch.signature)}
    source = ASTSource(
        launch.kernel,
        launch.signature,
        {where[name]: value for name, value in launch.constants.items()},
        {where[name]: [["tt.divisibility", 16]] for name in launch.divisible},
    )
    return dict(triton.compile(source, target=GPUTarget(*TARGETS[target]), options=launch.options).asm)
