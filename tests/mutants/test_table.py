"""The mutants fit the code: what they change and the tests they name are where they say."""

from __future__ import annotations

import pytest

from tests.mutants.table import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fits_the_code(mutant: Mutant) -> None:
    mutant.check()


def test_names_are_unique() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 18
