"""`waybill infer` and `waybill analyzers`."""

from __future__ import annotations

import pytest

from waybill.lineage.analyzers.query_logs import without_values


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("INSERT INTO t VALUES (1, 'a''b'), (2, E'it\\'s')", "INSERT INTO t VALUES (?)"),
        ("DELETE FROM t1 WHERE x IN (1,2,3) /* all */ ;", "DELETE FROM t1 WHERE x IN (?)"),
        ("SELECT $$ a 'b' $$, $tag$ $$ $tag$, $1, 1.5e3", "SELECT ?"),
        ('UPDATE "T 1" SET a2 = 0x1F', 'UPDATE "T 1" SET a2 = ?'),
        ("SELECT 'never closed", "SELECT ?"),
    ],
)
def test_values_and_comments_make_no_other_statement(text: str, plain: str) -> None:
    assert without_values(text) == plain


@pytest.mark.parametrize("part", ["/*", "'", "''\\", "$$", "$a$b", '"', "(?", "?,", "\\", "1", "--"])
def test_a_hostile_statement_is_written_plain_in_proportion_to_its_length(part: str) -> None:
    assert len(without_values("SELECT " + part * 200_000)) <= 800_000
