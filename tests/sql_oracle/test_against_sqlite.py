"""Statements against SQLite's authorizer, which is asked for each table and column that a statement uses."""

from __future__ import annotations

from random import Random

import apsw
import hypothesis
import pytest
from authorizer import Authorizer
from grammar import Grammar
from hypothesis import strategies
from judging import Case, Tally, ask

ALL = 3_000
TOLD_MAX = 0.1
AUTHORIZER = Authorizer()


def judge(random: Random) -> Case:
    """Make a statement, and ask both sides."""
    text, written, columns, is_coarse = Grammar(random, is_postgres=False).statement()
    try:
        truth = AUTHORIZER.ask(text, columns, is_coarse=is_coarse)
    except apsw.SQLError:
        hypothesis.reject()  # the grammar does not know every rule
    return Case(
        text, truth, ask(text, "sqlite", AUTHORIZER.columns, written=written and AUTHORIZER.name(written))
    )


@hypothesis.given(strategies.randoms(use_true_random=False))
def test_a_sample_of_statements_uses_what_the_database_says(random: Random) -> None:
    case = judge(random)
    assert not case.faults, str(case)


@pytest.mark.exhaustive
def test_statements_use_what_the_database_says(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally()

    @hypothesis.settings(max_examples=ALL)
    @hypothesis.given(strategies.randoms(use_true_random=False))
    def collect(random: Random) -> None:
        tally.add(judge(random))

    collect()
    with capsys.disabled():
        print(f"\nstatements: {tally}")  # noqa: T201
    assert not tally.wrong, str(tally)
    assert tally.told < tally.texts * TOLD_MAX
