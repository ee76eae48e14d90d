"""One call with many tiny tensors: what a tensor costs beyond its bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from lioncub import kernels
from lioncub.kernels import Direction
from lioncub.lion import Lion
from lioncub.tools.bench.cases import Case
from lioncub.tools.bench.step_cases import LION_BYTES, SETTINGS, TwoPhaseReady, parameters

NUMEL = 16
ENCODE, APPLY, STEP = "encode_signs, tiny tensors", "apply_, tiny tensors", "Lion.step(), tiny tensors"


def small_cases(num_tensors: int, bodies: Sequence[str]) -> list[Case]:
    params = parameters([(NUMEL,)] * num_tensors)
    ready = TwoPhaseReady(params, spare=False)  # every operand there can be
    u, moves = ready.update_vector(), ready.moves()
    direction = Direction("signs", kernels.encode_signs(u, 0, abstain=False).payload)
    lion = Lion(params, **SETTINGS)
    calls: dict[str, tuple[Callable[[], object], tuple[float, float]]] = {
        ENCODE: (lambda: kernels.encode_signs(u, 0, abstain=False), (8, 1 / 8)),
        APPLY: (lambda: kernels.apply_(moves, direction), (12 + 1 / 8, 8)),
        STEP: (lion.step, LION_BYTES),
    }
    cases = [_case(num_tensors, name, call, *traffic) for name, (call, traffic) in calls.items()]
    return [replace(case, body=body) for case in cases for body in bodies]


def _case(num_tensors: int, name: str, call: Callable[[], object], read: float, written: float) -> Case:
    numel = num_tensors * NUMEL
    return Case(
        group="small",
        name=name,
        run=lambda _: call(),
        bytes_read=round(read * numel),
        bytes_written=round(written * numel),
        limit="axpy",
        num_tensors=num_tensors,
        numel=numel,
        calls=10,
        warm=True,
    )
