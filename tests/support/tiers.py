"""How much of a test every run does, and how much the slow tier."""

from __future__ import annotations

import pytest

slow = pytest.mark.slow


def counts(name: str, *, fast: int, full: int) -> pytest.MarkDecorator:
    """Pass ``name`` to the test: a number for every run, and a larger one for the slow tier."""
    return pytest.mark.parametrize(name, [fast, pytest.param(full, marks=slow)])
