"""Random sequences of what happens to a home, each compared with a small model; see `docs/development.md`."""

from __future__ import annotations

import pytest
from actions import simulate
from mutate import PROJECT, mutations

SEEDS = 4
"""`make simulation` has these and many more."""

REGRESSIONS = {
    "raw files that were compacted come back with the loss of power": 7,
}
"""Seeds that have found a fault, by what was wrong."""


@pytest.mark.parametrize("number", range(SEEDS))
def test_a_home_comes_to_what_its_model_says(number: int) -> None:
    simulate(number)


def test_each_mutation_can_be_made() -> None:
    texts = {one.number: (PROJECT / one.file).read_text().count(one.old) for one in mutations().values()}
    assert texts == dict.fromkeys(range(1, 61), 1)


@pytest.mark.parametrize("fault", REGRESSIONS)
def test_a_fault_that_was_found_stays_mended(fault: str) -> None:
    simulate(REGRESSIONS[fault])
