"""The counter of the files and functions of a step."""

from __future__ import annotations

from tests.support.cluster import Cluster
from tests.support.step_size import functions_of_a_step


def test_a_step_runs_through_the_library_in_all_its_threads(cluster: Cluster) -> None:
    first, second = cluster.run(2, functions_of_a_step)
    assert {"optimizer.py", "wire/headers.py", "codecs/levels.py", "kernels/dispatch.py"} <= set(first)
    assert "DistributedLion.step" in first["optimizer.py"], "methods by their class"
    assert "encode_levels" in first["kernels/dispatch.py"], "called by backward's hooks"
    assert set(first) == set(second)
    assert not any(file.startswith("tools/") for file in first)
