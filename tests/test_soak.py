"""Thousands of steps with workers that abstain and restart: replicas stay the same, memory and threads do not grow."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import TRAIN
from tests.support.seeds import chance
from tests.support.torchrun import torchrun
from tests.support.train_script import Config, Fault

pytestmark = pytest.mark.slow

NUM_WORKERS = 4
STEPS = 3_000
WATCH_EVERY = 50
MOST_GROWTH_BYTES = 2 << 20


def watched(folder: Path, rank: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"watched-{rank}").read_text().splitlines()]


def test_three_thousand_steps(tmp_path: Path) -> None:
    numbers = chance("soak")
    faults = tuple(Fault("after vote", numbers.randrange(NUM_WORKERS), numbers.randint(400, 900)) for _ in range(2))
    config = Config(
        folder=str(tmp_path),
        steps=STEPS,
        every=100,
        faults=faults,
        abstain_seed=numbers.randrange(1, 2**32),
        watch_every=WATCH_EVERY,
        bucket_numel=150,
    )
    print(config)
    done = torchrun(TRAIN, config.to_json(), num_workers=NUM_WORKERS, max_restarts=len(faults), seconds=280)
    assert done.returncode == 0, done.stderr
    reports = [watched(tmp_path, rank) for rank in range(NUM_WORKERS)]
    for lines in reports:
        assert {line["step"] for line in lines} == set(range(0, STEPS, WATCH_EVERY))
        assert len({line["pid"] for line in lines}) == 1 + len(faults), "a new process for every attempt"
    for step in range(0, STEPS, WATCH_EVERY):
        assert len({line["crc"] for lines in reports for line in lines if line["step"] == step}) == 1, step
    for lines in reports:
        for _, attempt in groupby(lines, key=lambda line: line["pid"]):
            assert_flat(list(attempt)[3:])  # the first steps and the first save fill caches


def assert_flat(lines: list[dict[str, Any]]) -> None:
    """The second half of an attempt needs what the first half needed. Saves in the background have files open."""
    first, second = lines[: len(lines) // 2], lines[len(lines) // 2 :]
    assert max(line["bytes"] for line in second) <= max(line["bytes"] for line in first) + MOST_GROWTH_BYTES
    assert min(line["files"] for line in second) <= min(line["files"] for line in first)
