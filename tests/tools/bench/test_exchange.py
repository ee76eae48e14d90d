"""The exchange alone, timed on a real slow network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from lioncub.errors import ConfigError
from lioncub.records import from_json, to_json
from lioncub.tools.bench.exchange import ExchangeRecord, run_exchange, table
from lioncub.tools.bench.exchange_config import MARKERS, ExchangeConfig, ExchangeTask
from lioncub.tools.lab.isolation import find_isolation
from lioncub.tools.lab.rates import BURST_BYTES

ISOLATION = find_isolation()


@pytest.mark.slow
@pytest.mark.skipif(not ISOLATION.networked, reason=f"no network can be made here: {ISOLATION.reason}")
def test_no_exchange_is_faster_than_the_wire(tmp_path: Path) -> None:
    docs = tmp_path / "page.md"
    docs.write_text(f"{MARKERS.begin}\n{MARKERS.end}\n")
    config = ExchangeConfig(numel=4_000_000, hosts=(2,), rates=("100mbit",), repeats=3, out=tmp_path, docs=docs)
    records = run_exchange(config, Console(quiet=True))
    assert [record.way for record in records] == [
        *("vote, two-phase, one bucket", "messages alone, one bucket"),
        *("vote, two-phase, one bucket, by gloo", "messages alone, one bucket, by gloo"),
        "float32 allreduce of gloo",
    ]
    for record in records:
        burst_seconds = 8 * BURST_BYTES / 100e6
        assert record.seconds > record.wire_seconds - 1.1 * burst_seconds, "only a burst may leave before its time"
    ours, messages, by_gloo, _, theirs = (record.bytes_sent for record in records)
    assert theirs > 28 * ours
    assert 0.98 < messages / ours <= 1.01
    assert 0.98 < ours / by_gloo <= 1.01
    assert len(config.records.read_text().splitlines()) == len(records)
    assert "float32 allreduce" in docs.read_text()


def test_the_wire_needs_its_bytes_over_its_rate() -> None:
    line = {"seconds": [3.0, 1.0, 2.0], "bytes_sent": [1e6, 1e6, 2e6]}
    record = ExchangeRecord.of(line, "a vote", "8mbit", 4, 10)
    assert (record.seconds, record.wire_seconds, record.ratio) == (2.0, 1.0, 2.0)
    assert table([record]).rows == [["a vote", "8mbit", "4", "1.000", "2000.0", "1000.0", "2.00"]]


def test_hosts_are_told_what_they_are_told() -> None:
    task = ExchangeTask(1, 2, "eth0", "answer")
    assert from_json(to_json(task), ExchangeTask) == task
    assert json.loads(to_json(task))["interface"] == "eth0"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"hosts": (1, 4)}, "hosts"),
        ({"hosts": ()}, "hosts"),
        ({"rates": ("fast",)}, "no rate"),
        ({"rates": ()}, "rates"),
        ({"repeats": 2}, "repeats"),
    ],
)
def test_what_cannot_be_measured_is_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ExchangeConfig(**wrong)  # type: ignore[arg-type]
