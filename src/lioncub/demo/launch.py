"""Start the workers of one method under torchrun, follow what they write, and stop them whatever happens."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lioncub.demo.config import METHODS, DemoConfig
from lioncub.demo.errors import WorkerFailedError
from lioncub.demo.records import Step, parse_step

POLL_SECONDS = 0.2
GRACE_SECONDS = 15.0
TAIL_LINES = 12


def run_workers(config: DemoConfig, scratch: Path, on_step: Callable[[Step], None]) -> list[Step]:
    """Train every method in `config.workers` processes; `on_step` sees each step soon after it is done."""
    (scratch / "config.json").write_text(config.to_json())
    records = scratch / "records.jsonl"
    records.touch()
    steps: list[Step] = []
    with launched(command(config, scratch), scratch) as torchrun, records.open() as lines:
        unfinished = ""
        while True:
            running = torchrun.poll() is None
            *complete, unfinished = (unfinished + lines.read()).split("\n")
            for line in complete:
                steps.append(parse_step(line))
                on_step(steps[-1])
            if not running:
                break
            time.sleep(POLL_SECONDS)
    if torchrun.returncode != 0:
        raise WorkerFailedError(failure(config, scratch, steps, torchrun.returncode))
    return steps


def command(config: DemoConfig, scratch: Path) -> list[str]:
    """torchrun with a file as its rendezvous, because its usual TCP store listens on every interface."""
    return [
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--nproc-per-node", str(config.workers)),
        *("--rdzv-backend", "c10d", "--rdzv-conf", "store_type=file"),
        *("--rdzv-endpoint", str(scratch / "rendezvous"), "--local-addr", "127.0.0.1"),
        *("--redirects", "3", "--log-dir", str(scratch / "logs")),
        *("-m", "lioncub.demo.worker"),
        *(str(scratch / name) for name in ("config.json", "store", "records.jsonl")),
    ]


@contextmanager
def launched(arguments: list[str], scratch: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has ended, with the workers it started, when the block is left."""
    environment = os.environ | {
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    with (scratch / "torchrun.log").open("wb") as log:
        # A session of its own: Ctrl-C reaches this process alone, which then ends the others in order.
        process = subprocess.Popen(
            arguments,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes], grace_seconds: float = GRACE_SECONDS) -> None:
    """Ask torchrun to end its workers and itself. If it must be killed, workers notice at their next step."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def failure(config: DemoConfig, scratch: Path, steps: list[Step], code: int) -> str:
    """Where training stood and what the first worker to fail printed last. All logs move to `config.out`."""
    torchrun_log = (scratch / "torchrun.log").read_text(errors="replace")
    logs = {path.parent.name: path.read_text(errors="replace") for path in scratch.glob("logs/**/stderr.log")}
    first = re.search(r"Root Cause.*?rank\s*:\s*(\d+)", torchrun_log, re.DOTALL)
    rank = first.group(1) if first else ""

    kept = config.out / "failed.log"
    config.out.mkdir(parents=True, exist_ok=True)
    sections = [(f"worker {name}", text) for name, text in sorted(logs.items())]
    kept.write_text("".join(f"== {name} ==\n{text}\n" for name, text in [*sections, ("torchrun", torchrun_log)]))

    printed = logs.get(rank, "").strip() or torchrun_log.strip() or "(nothing)"
    who = f"worker {rank}" if rank else f"torchrun (exit code {code})"
    when = f"after step {steps[-1].step} of {METHODS[steps[-1].method]}" if steps else "before the first step"
    tail = "\n".join(printed.splitlines()[-TAIL_LINES:])
    return f"{who} failed {when}. All logs: {kept}. The last it said:\n{tail}"
