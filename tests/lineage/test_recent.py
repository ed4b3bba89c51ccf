"""How jobs ran lately, and of which datasets the columns changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from events import members
from keeping import keep_filed

if TYPE_CHECKING:
    from waybill.transport import Settings


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
FILED = [0, 2, 99]
"""How many events are in the index; the others are in the journal only."""


def ran(job: str, minute: int, kind: str = "COMPLETE", *, run: str = "", **others: Any) -> dict[str, Any]:  # noqa: ANN401
    at = (NOON + timedelta(minutes=minute)).isoformat()
    named = {"namespace": "etl", "name": job}
    return members(run or f"{job} at {minute}", kind, at=at, job=named, **others)


def ms(minute: int) -> int:
    return int((NOON + timedelta(minutes=minute)).timestamp() * 1_000)


def with_columns(name: str, owner: str = "", **columns: str) -> dict[str, Any]:
    fields = [{"name": one, "type": kind} for one, kind in columns.items()]
    facets: dict[str, Any] = {"schema": {"fields": fields}}
    if owner:
        facets["ownership"] = {"owners": [{"name": owner}]}
    return {"namespace": "lake", "name": name, "facets": facets}


@pytest.mark.parametrize("filed", FILED)
def test_the_newest_runs_come_first_with_the_datasets_of_their_jobs(settings: Settings, filed: int) -> None:
    told = [
        ran("load", 0, inputs=["ftp/raw"], outputs=["lake/raw"]),
        ran("sum", 1, "START", run="s", inputs=["lake/raw"]),
        ran("sum", 3, "FAIL", run="s", outputs=["lake/report"]),
        ran("mail", 2, "START", run="m", inputs=["lake/report"]),
    ]
    lineage = keep_filed(settings, told, filed)
    found = lineage.recent_runs()
    assert [(one.job.name, one.run.state) for one in found] == [
        ("sum", "ERROR"),
        ("mail", "RUNNING"),
        ("load", "COMPLETE"),
    ]
    assert [[node.name for node in one.inputs] for one in found] == [["raw"], ["report"], ["raw"]]
    assert [[node.name for node in one.outputs] for one in found] == [["report"], [], ["raw"]]
    assert (found[0].run.started_ms, found[0].run.ended_ms) == (ms(1), ms(3))
    assert [one.job.name for one in lineage.recent_runs(state="ERROR")] == ["sum"]
    assert [one.job.name for one in lineage.recent_runs(since_ms=ms(2))] == ["sum", "mail"]
    assert [one.job.name for one in lineage.recent_runs(limit=1)] == ["sum"]


@pytest.mark.parametrize("filed", FILED)
def test_a_change_of_columns_is_told_with_those_whom_it_concerns(settings: Settings, filed: int) -> None:
    told = [
        ran("load", 0, outputs=[with_columns("raw", a="int", b="int", c="int")]),
        ran("load", 1, outputs=[with_columns("raw", a="int", b="text", d="int")]),
        ran("load", 2, outputs=[with_columns("other", a="int")]),
        ran("sum", 3, inputs=["lake/raw"], outputs=[with_columns("report", owner="ada", s="int")]),
    ]
    lineage = keep_filed(settings, told, filed)
    (change,) = lineage.schema_changes()
    assert (change.dataset.name, change.changed_ms) == ("raw", ms(1))
    assert (change.added, change.removed, change.retyped) == (("d",), ("c",), ("b",))
    assert (change.reached, change.owners) == (2, ("ada",))
    assert lineage.schema_changes(since_ms=ms(1)) == (change,)
    assert lineage.schema_changes(since_ms=ms(2)) == ()
