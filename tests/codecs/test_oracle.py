"""Every codec in training: virtual workers in one process equal the reference, with zero tolerance."""

from __future__ import annotations

import pytest
import torch

from lioncub.tools.study.lions import VirtualLion
from tests.support.training import SHORT, oracle
from tests.table import ROWS, Row

WORKERS = (2, 3, 5, 8)
"""By turns: ``test_codecs.py`` draws any number of workers for every codec."""


@pytest.mark.parametrize(
    ("row", "num_workers"),
    [pytest.param(row, WORKERS[number % 4], id=f"{row.id}, {WORKERS[number % 4]}") for number, row in enumerate(ROWS)],
)
def test_virtual_workers_equal_the_reference(row: Row, num_workers: int) -> None:
    rates = {"betas": SHORT.betas, "weight_decay": SHORT.weight_decay, "memory": SHORT.memory, "warmup": SHORT.warmup}
    named = [(f"p{number}", value) for number, value in enumerate(SHORT.parameters())]
    method = VirtualLion(named, num_workers, codec=row.codec, **rates)  # type: ignore[arg-type]
    for step in range(SHORT.steps):
        for worker in range(num_workers):
            gradients = [SHORT.gradient(step, worker, tensor) for tensor in range(len(named))]
            method.send(worker, [g for g in gradients if g is not None])
        method.move(SHORT.lr)
    xs, ms = oracle(SHORT, num_workers, row.combine)
    for tensor, (x, m) in enumerate(zip(xs, ms, strict=True)):
        assert torch.equal(method.params[tensor].view(-1), x), f"parameter {tensor}"
        for worker in range(num_workers):
            assert torch.equal(method.momenta[worker][tensor], m[worker]), f"momentum {tensor} of worker {worker}"
