"""One host's part of the exchange's benchmark, started by the lab.

What is timed is the exchange alone: payloads are encoded before the clock starts, nothing is applied after it stops.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from time import perf_counter, sleep

import torch
import torch.distributed as dist

from lioncub.codecs import Vote
from lioncub.collectives import collective_from
from lioncub.records import from_json
from lioncub.step.buckets import Bucket, plan_buckets
from lioncub.step.in_flight import Exchanges, InFlight
from lioncub.step.parameters import Slot
from lioncub.tools.bench.exchange_config import ExchangeTask
from lioncub.tools.lab.counters import read_counters
from lioncub.transport.comm import Comm, Pending
from lioncub.wire.headers import Stamp

WARM_UP = 3
HEAD_START_SECONDS = 0.03
"""The delay of the common start, in which all hosts receive it and become idle."""
TENSORS = 64


@dataclass(frozen=True)
class Way:
    """A way to combine the updates of all hosts. ``prepare`` returns what is timed."""

    name: str
    prepare: Callable[[], Callable[[], object]]


def ways(numel: int) -> list[Way]:
    """The vote in one bucket and in the optimizer's buckets, and empty messages of the same length, each by sockets and
    by gloo; and the allreduce that the vote replaces."""
    backend = Comm.of(None, torch.device("cpu")).on_new_channel()
    group = {"codec": Vote(), "betas": (0.9, 0.99), "maximize": False, "lr": 1e-4, "weight_decay": 0.0}
    group |= {"memory": 0.0, "warmup": 0, "step": 0, "since": 0}
    slots = [slot(part, group, number) for number, part in enumerate(torch.randn(numel).tensor_split(TENSORS))]
    found = []
    ours = backend.connected()
    ours.check_carrier("sockets")
    for carrier, comm in (("", ours), (", by gloo", backend)):
        plans = [plan_buckets(slots, comm, collective_from("two-phase"), most) for most in (numel, None)]
        for buckets in plans if len(plans[1]) > 1 else plans[:1]:
            named = "one bucket" if len(buckets) == 1 else f"{len(buckets)} buckets"
            found.append(Way(f"vote, two-phase, {named}{carrier}", vote(buckets, comm)))
            found.append(Way(f"messages alone, {named}{carrier}", messages(buckets, comm)))
    return [*found, Way("float32 allreduce of gloo", lambda: all_reduce(numel))]


def vote(buckets: list[Bucket], comm: Comm) -> Callable[[], Callable[[], object]]:
    exchanges = Exchanges(threaded=True)

    def prepare() -> Callable[[], object]:
        stamp = Stamp(step=0, plan=0, hyper=0)
        ready = [bucket.exchange(comm, stamp, 8 + 8 * bucket.index)[1] for bucket in buckets]

        def run() -> None:
            for exchange in ready:
                exchanges.launch(exchange)
            exchanges.wait()

        return run

    return prepare


def messages(buckets: list[Bucket], comm: Comm) -> Callable[[], Callable[[], object]]:
    """Exchanges of messages as long as the vote's, without encoding or combination."""
    exchanges = Exchanges(threaded=True)

    def exchange(bucket: Bucket) -> Generator[Pending, None, bool]:
        shard_bytes = bucket.layout.blocks // comm.size * bucket.codec.up_block_bytes
        rows, tag = torch.zeros(comm.size, shard_bytes, dtype=torch.uint8), 8 + 8 * bucket.index
        yield comm.all_to_all(rows, tag)[1]
        yield comm.all_gather(rows[comm.index], tag + 1)[1]
        return True

    def run() -> None:
        for bucket in buckets:
            exchanges.launch(InFlight(exchange(bucket), ordered=False))
        exchanges.wait()

    return lambda: run


def all_reduce(numel: int) -> Callable[[], object]:
    values = torch.randn(numel)
    return lambda: dist.all_reduce(values)


def slot(values: torch.Tensor, group: dict[str, object], number: int) -> Slot:
    param = torch.nn.Parameter(values.clone())
    param.grad = torch.randn_like(param)
    return Slot(param, group, {"exp_avg": torch.zeros_like(param)}, f"part {number}", number, {})


def common_start() -> float:
    """The time of a common start, by the machine's one clock: hosts leave a barrier milliseconds apart."""
    dist.barrier()  # a host that is still encoding would take processor time from the others
    moment = torch.tensor([perf_counter() + HEAD_START_SECONDS], dtype=torch.float64)
    dist.broadcast(moment, src=0)
    start = float(moment)
    sleep(max(start - perf_counter(), 0))
    return start


def timed(way: Way, interface: str) -> tuple[float, int]:
    """Seconds from the common start to the last host's end, and the most bytes that a host sent."""
    run = way.prepare()
    before, start = read_counters(interface).sent_bytes if interface else 0, common_start()
    run()
    seconds = perf_counter() - start
    dist.barrier()
    sent = read_counters(interface).sent_bytes - before if interface else 0
    worst = torch.tensor([seconds, float(sent)], dtype=torch.float64)
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    return float(worst[0]), int(worst[1])


def main() -> None:
    task = from_json(Path(sys.argv[1]).read_bytes(), ExchangeTask)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=300))
    torch.manual_seed(dist.get_rank())
    tried = ways(task.numel)
    # In turn: a machine that is busy for a while slows all ways alike.
    rounds = [[timed(way, task.interface) for way in tried] for _ in range(WARM_UP + task.repeats)][WARM_UP:]
    if dist.get_rank() == 0:
        with Path(task.answer).open("w", encoding="utf-8") as file:
            for way, samples in zip(tried, zip(*rounds, strict=True), strict=True):
                line = {"way": way.name, "seconds": [s for s, _ in samples], "bytes_sent": [b for _, b in samples]}
                file.write(json.dumps(line) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
