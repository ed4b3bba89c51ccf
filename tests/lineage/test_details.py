"""What events tell of one dataset, job or column, and how that has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from keeping import answers_of, at_ms, dataset, keep, ran

from waybill.lineage.graph import NodeChange, OfDetails

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from waybill.lineage.answers import HomeAnswers

FIRST = {"id": "int", "total": "int"}
SECOND = {"id": "int", "total": "decimal", "state": "string"}


def wrote(minute: int, kind: str, types: Mapping[str, str], version: str, owner: str) -> dict[str, Any]:
    facets: dict[str, Any] = {
        "version": {"datasetVersion": version},
        "documentation": {"description": "All orders"},
        "tags": {"tags": [{"key": "tier", "value": "critical"}]},
    }
    output = dataset("orders", types=types, owners=[owner], **facets)
    text = f"SELECT {', '.join(types)} FROM raw"  # noqa: S608 - our own names
    return ran("etl/load", [], [output], minute, kind, run=f"run {minute // 10}", sql=text)


@pytest.fixture
def answers(home: Path) -> Iterator[HomeAnswers]:
    told = [
        wrote(0, "START", FIRST, "1", "ada"),
        wrote(5, "COMPLETE", FIRST, "1", "ada"),
        wrote(10, "START", SECOND, "2", "bob"),
        wrote(12, "FAIL", SECOND, "2", "bob"),
        wrote(20, "START", SECOND, "2", "bob"),
    ]
    keep(home, reversed(told))
    with answers_of(home) as opened:
        yield opened


def changes_of(found: tuple[NodeChange, ...]) -> list[tuple[str, str, str | None, str | None]]:
    return [(one.what, one.of, one.first, one.second) for one in found]


def test_a_dataset_has_its_columns_versions_runs_sql_and_what_changed(answers: HomeAnswers) -> None:
    found = answers.answer(OfDetails("lake/orders"))
    assert (found.description, found.tags) == ("All orders", ("tier:critical",))
    assert found.types == SECOND
    assert found.versions == {"1": at_ms(0), "2": at_ms(10)}
    assert changes_of(found.changes) == [
        ("column", "state", None, "string"),
        ("column", "total", "int", "decimal"),
        ("owner", "", "ada", None),
        ("owner", "", None, "bob"),
    ]
    assert {(one.at_ms, one.version) for one in found.changes} == {(at_ms(10), "2")}
    runs = [(one.run.run, one.run.state, one.run.ended_ms) for one in found.runs]
    assert runs == [
        ("run 2", "RUNNING", None),
        ("run 1", "ERROR", at_ms(12)),
        ("run 0", "COMPLETE", at_ms(5)),
    ]
    assert [text.sql for text in found.texts] == ["SELECT id, total, state FROM raw"]


def test_a_job_has_its_runs_and_the_changes_of_its_sql(answers: HomeAnswers) -> None:
    found = answers.answer(OfDetails("load"))
    assert [one.run.run for one in found.runs] == ["run 2", "run 1", "run 0"]
    assert changes_of(found.changes) == [
        ("sql", "", "SELECT id, total FROM raw", "SELECT id, total, state FROM raw")
    ]
    assert found.versions == {}


def test_a_column_has_its_type_and_only_its_own_changes(answers: HomeAnswers) -> None:
    found = answers.answer(OfDetails("column:lake/orders.total"))
    assert found.types == {"total": "decimal"}
    assert changes_of(found.changes) == [("column", "total", "int", "decimal")]
    assert [one.job.name for one in found.runs] == ["load"] * 3
