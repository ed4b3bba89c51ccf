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


def judge(random: Random) -> list[Case]:
    """Make a statement, and ask both sides: an analyzer that knows all columns, and one that knows none."""
    statement = Grammar(random, is_postgres=False).statement()
    try:
        truth = AUTHORIZER.ask(statement)
    except apsw.SQLError:
        hypothesis.reject()  # the grammar does not know every rule
    written = statement.written and AUTHORIZER.name(statement.written)
    return [
        Case(statement.text, truth, ask(statement.text, "sqlite", "main", columns, written))
        for columns in (AUTHORIZER.columns, {})
    ]


@hypothesis.given(strategies.randoms(use_true_random=False))
def test_a_sample_of_statements_uses_what_the_database_says(random: Random) -> None:
    for case in judge(random):
        assert not case.faults, str(case)


@pytest.mark.exhaustive
def test_statements_use_what_the_database_says(capsys: pytest.CaptureFixture[str]) -> None:
    with_columns, without = Tally(), Tally()

    @hypothesis.settings(max_examples=ALL)
    @hypothesis.given(strategies.randoms(use_true_random=False))
    def collect(random: Random) -> None:
        for tally, case in zip((with_columns, without), judge(random), strict=True):
            tally.add(case)

    collect()
    with capsys.disabled():
        print(f"\nstatements: {with_columns}\nthe same, no columns known: {without}")  # noqa: T201
    assert not with_columns.wrong, str(with_columns)
    assert not without.wrong, str(without)
    assert with_columns.told < with_columns.texts * TOLD_MAX
