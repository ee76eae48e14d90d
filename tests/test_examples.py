"""Scripts run the way users run them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lioncub import checkpoint
from lioncub.live import End, Reading
from lioncub.monitor.records import from_json
from tests.support.torchrun import torchrun

MANY_OPTIMIZERS = """
import torch, torch.distributed as dist
from torch import nn
from lioncub import DistributedLion

dist.init_process_group("gloo")
alive = []
for _ in range(10):
    params = [nn.Parameter(torch.zeros(100)) for _ in range(3)]
    alive.append(DistributedLion(params, bucket_numel=100))
    torch.stack([(p * torch.randn(100)).sum() for p in params]).sum().backward()
    alive[-1].step()
print("done")
"""


EXCEPTION_AFTER_BACKWARD = """
import torch, torch.distributed as dist
from torch import nn
from lioncub import DistributedLion

dist.init_process_group("gloo")
params = [nn.Parameter(torch.zeros(100)) for _ in range(5)]
optimizer = DistributedLion(params, bucket_numel=100)
torch.stack([(p * torch.randn(100)).sum() for p in params]).sum().backward()
raise SystemExit(7)
"""


def successful(*command: str) -> str:
    done = torchrun(*command, GLOO_SOCKET_IFNAME="lo")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_trains() -> None:
    printed = successful("examples/train.py")
    found = re.search(r"loss ([\d.]+), ([\d.]+) bits", printed)
    assert found, printed
    assert float(found[1]) < 0.9, "the target's variance is 1"
    assert 1.0 <= float(found[2]) < 1.3


@pytest.mark.slow
def test_the_example_shows_itself_live(tmp_path: Path) -> None:
    done = torchrun("examples/train.py", "--live", str(tmp_path / "live.jsonl"))
    assert done.returncode == 0, done.stderr
    assert re.search(r"step 199 · loss [\d.]+ · .* a step \(compute \d+%", done.stderr)
    events = [from_json(text) for text in (tmp_path / "live.jsonl").read_text().splitlines()]
    assert sum(event.num_steps for event in events if isinstance(event, Reading)) == 200
    assert isinstance(events[-1], End)


@pytest.mark.slow
def test_the_example_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    first = successful("examples/train.py", "--checkpoints", str(tmp_path))
    assert checkpoint.latest(tmp_path) == 200
    again = successful("examples/train.py", "--checkpoints", str(tmp_path))
    assert again.split(",")[0] == first.split(",")[0], "the loss that was saved"


def test_processes_end_cleanly_while_optimizers_live(tmp_path: Path) -> None:
    script = tmp_path / "many.py"
    script.write_text(MANY_OPTIMIZERS)
    assert successful(str(script)).count("done") == 2


def test_leaving_with_messages_in_flight_is_no_abort(tmp_path: Path) -> None:
    script = tmp_path / "leave.py"
    script.write_text(EXCEPTION_AFTER_BACKWARD)
    done = torchrun(str(script), GLOO_SOCKET_IFNAME="lo")
    assert done.returncode != 0
    assert "exitcode  : 7" in done.stderr, done.stderr
    assert "SIGABRT" not in done.stderr
    assert "terminate called" not in done.stderr
