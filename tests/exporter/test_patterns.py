"""Which names a pattern of a question matches, where no database is asked."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, strategies as st

from waybill.exporter import Query
from waybill.exporter.query import has_name


def matches(pattern: str, name: str) -> bool:
    """The definition, letter by letter."""
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(matches(pattern[1:], name[at:]) for at in range(len(name) + 1))
    return bool(name) and pattern[0] in {"?", name[0]} and matches(pattern[1:], name[1:])


@given(st.text("ab.*?\n", max_size=7), st.text("ab.\n", max_size=8))
@example("*a*", "ba")
@example("a*a", "a")
@example("*.b", "a.b.b")
def test_a_star_stands_for_any_letters_and_a_question_mark_for_one(pattern: str, name: str) -> None:
    assert has_name(Query(filename=pattern), "filename", name) == matches(pattern, name)


@pytest.mark.parametrize("part", ["*a", "*a?", "?*", "**"])
def test_a_pattern_of_many_stars_takes_little_time(part: str) -> None:
    began_s = time.thread_time()
    assert not has_name(Query(filename=part * 200 + "*b"), "filename", "a" * 4_000)
    assert time.thread_time() - began_s < 2
