"""Workers killed at random under ``torchrun --max-restarts``: the run finishes, and nothing is lost."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.support.paths import TRAIN
from tests.support.seeds import chance
from tests.support.tiers import slow
from tests.support.torchrun import torchrun
from tests.support.train_script import POINTS, Config, Fault

MOST_CALLS = {"before header": 40, "in vote": 60, "after vote": 8, "in save": 30}
"""A kill is at one of the first calls of an attempt: about eight steps, two saves."""


def trained(folder: Path, num_workers: int, faults: tuple[Fault, ...] = ()) -> list[str]:
    """The digest of everything on every worker at the end."""
    folder.mkdir()
    config = Config(folder=str(folder), steps=60, every=4, faults=faults)
    done = torchrun(TRAIN, config.to_json(), num_workers=num_workers, max_restarts=len(faults))
    assert done.returncode == 0, done.stderr
    return [(folder / f"digest-{rank}").read_text() for rank in range(num_workers)]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("restarts")


@cache
def undisturbed(folder: Path, num_workers: int) -> list[str]:
    return trained(folder / f"undisturbed-{num_workers}", num_workers)


@pytest.mark.parametrize(
    ("run", "num_workers", "kills"),
    [(2, 2, 1), *(pytest.param(run, 3 if run == 1 else 2, 5, marks=slow) for run in range(4))],
)
def test_kills_change_nothing(run: int, num_workers: int, kills: int, folder: Path) -> None:
    numbers = chance(f"restarts {run}")
    points = [list(POINTS)[run], *numbers.choices(list(POINTS), k=kills - 1)]  # each of them at least once
    faults = tuple(
        Fault(point, numbers.randrange(num_workers), numbers.randint(1, MOST_CALLS[point])) for point in points
    )
    print(faults)
    result = trained(folder / f"run-{run}-{kills}", num_workers, faults)
    assert len(list((folder / f"run-{run}-{kills}").glob("fault-*"))) == kills, "all of them happened"
    assert result == undisturbed(folder, num_workers)
