"""What events tell of one dataset, job or column, and how that has changed."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from events import members

from waybill.collector.endpoints import Readings
from waybill.lineage.graph import NodeChange, OfDetails
from waybill.transport import Journal, Kind
from waybill.transport.config import obey

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from waybill.lineage.answers import HomeAnswers

BEGAN_MS = 1_769_860_800_000
FIRST = {"id": "int", "total": "int"}
SQL = "SELECT {} FROM raw"
SECOND = {"id": "int", "total": "decimal", "state": "string"}


def ran(minute: int, kind: str, columns: Mapping[str, str], version: str, owner: str) -> dict[str, Any]:
    facets = {
        "schema": {"fields": [{"name": name, "type": type_} for name, type_ in columns.items()]},
        "version": {"datasetVersion": version},
        "ownership": {"owners": [{"name": owner}]},
        "documentation": {"description": "All orders"},
        "tags": {"tags": [{"key": "tier", "value": "critical"}]},
    }
    job = {
        "namespace": "etl",
        "name": "load",
        "facets": {"sql": {"query": SQL.format(", ".join(columns))}},
    }
    output = {"namespace": "lake", "name": "orders", "facets": facets}
    at = f"2026-01-31T12:{minute:02}:00Z"
    return members(f"run {minute // 10}", kind, at, job=job, outputs=[output])


@pytest.fixture
def answers(home: Path) -> Iterator[HomeAnswers]:
    told = [
        ran(0, "START", FIRST, "1", "ada"),
        ran(5, "COMPLETE", FIRST, "1", "ada"),
        ran(10, "START", SECOND, "2", "bob"),
        ran(12, "FAIL", SECOND, "2", "bob"),
        ran(20, "START", SECOND, "2", "bob"),
    ]
    with closing(Journal(home)) as journal, closing(Readings(journal, obey(journal))) as readings:
        journal.append_many((Kind.OPENLINEAGE, json.dumps(one).encode(), "tests") for one in reversed(told))
        yield readings.begin().answers


def changes_of(found: tuple[NodeChange, ...]) -> list[tuple[str, str, str | None, str | None]]:
    return [(one.what, one.of, one.first, one.second) for one in found]


def test_a_dataset_has_its_columns_versions_runs_sql_and_what_changed(answers: HomeAnswers) -> None:
    found = answers.answer(OfDetails("lake/orders"))
    assert (found.description, found.tags) == ("All orders", ("tier:critical",))
    assert found.types == SECOND
    assert found.versions == {"1": BEGAN_MS, "2": BEGAN_MS + 600_000}
    assert changes_of(found.changes) == [
        ("column", "state", None, "string"),
        ("column", "total", "int", "decimal"),
        ("owner", "", "ada", None),
        ("owner", "", None, "bob"),
    ]
    assert {(one.at_ms, one.version) for one in found.changes} == {(BEGAN_MS + 600_000, "2")}
    runs = [(one.run.run, one.run.state, one.run.ended_ms) for one in found.runs]
    assert runs == [
        ("run 2", "RUNNING", None),
        ("run 1", "ERROR", BEGAN_MS + 720_000),
        ("run 0", "COMPLETE", BEGAN_MS + 300_000),
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
