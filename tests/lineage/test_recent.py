"""How jobs ran lately, and of which datasets the columns changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keeping import at_ms, dataset, keep_filed, ran

if TYPE_CHECKING:
    from waybill.transport import Settings


def test_the_newest_runs_come_first_with_the_datasets_of_their_jobs(settings: Settings) -> None:
    told = [
        ran("etl/load", ["ftp/raw"], ["lake/raw"]),
        ran("etl/sum", ["lake/raw"], [], 1, "START", run="s"),
        ran("etl/sum", [], ["lake/report"], 3, "FAIL", run="s"),
        ran("etl/mail", ["lake/report"], [], 2, "START", run="m"),
    ]
    lineage = keep_filed(settings, told, 2)
    found = lineage.recent_runs()
    assert [(one.job.name, one.run.state) for one in found] == [
        ("sum", "ERROR"),
        ("mail", "RUNNING"),
        ("load", "COMPLETE"),
    ]
    assert [[node.name for node in one.inputs] for one in found] == [["raw"], ["report"], ["raw"]]
    assert [[node.name for node in one.outputs] for one in found] == [["report"], [], ["raw"]]
    assert (found[0].run.started_ms, found[0].run.ended_ms) == (at_ms(1), at_ms(3))
    assert [one.job.name for one in lineage.recent_runs(state="ERROR")] == ["sum"]
    assert [one.job.name for one in lineage.recent_runs(since_ms=at_ms(2))] == ["sum", "mail"]
    assert [one.job.name for one in lineage.recent_runs(limit=1)] == ["sum"]


def test_a_change_of_columns_is_told_with_those_whom_it_concerns(settings: Settings) -> None:
    told = [
        ran("etl/load", [], [dataset("raw", types={"a": "int", "b": "int", "c": "int"})]),
        ran("etl/load", [], [dataset("raw", types={"a": "int", "b": "text", "d": "int"})], 1),
        ran("etl/load", [], [dataset("other", types={"a": "int"})], 2),
        ran("etl/sum", ["lake/raw"], [dataset("report", types={"s": "int"}, owners=["ada"])], 3),
    ]
    lineage = keep_filed(settings, told, 2)
    (change,) = lineage.schema_changes()
    assert (change.dataset.name, change.changed_ms) == ("raw", at_ms(1))
    assert (change.added, change.removed, change.retyped) == (("d",), ("c",), ("b",))
    assert (change.reached, change.owners) == (2, ("ada",))
    assert lineage.schema_changes(since_ms=at_ms(1)) == (change,)
    assert lineage.schema_changes(since_ms=at_ms(2)) == ()
