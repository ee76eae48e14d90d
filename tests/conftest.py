"""Fixtures shared by all tests, and how they are spread over processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.support.cluster import Cluster

torch.set_num_threads(1)  # the workers need the cores


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file's tests stay together, in one process of pytest-xdist: they share fixtures. Unless they say otherwise."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Eight workers, for tests in which all of them stay alive."""
    workers = Cluster(8, sizes=(1, 2, 3, 4, 5, 6, 8))
    yield workers
    workers.close()
