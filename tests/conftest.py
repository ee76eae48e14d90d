"""Fixtures shared by all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.support.cluster import Cluster

torch.set_num_threads(1)  # the workers need the cores


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Eight workers, for tests in which all of them stay alive."""
    workers = Cluster(8, sizes=(1, 2, 3, 4, 5, 6, 8))
    yield workers
    workers.close()
