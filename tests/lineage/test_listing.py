"""Datasets that may be in excess, jobs that do the same, how these ran lately, and changes of columns."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings as hypothesis_settings, strategies as st
from keeping import at_ms, dataset, keep, keep_filed, ran, said_of, settings_in

from waybill.lineage.graph import shown
from waybill.lineage.graph.listing import normalized

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pytest

    from waybill.lineage import ListedDataset
    from waybill.transport import Settings


def names(found: Iterable[ListedDataset]) -> list[str]:
    return [shown(one.node) for one in found]


DROP: dict[str, Any] = {"lifecycleStateChange": {"lifecycleStateChange": "DROP"}}


def test_what_nobody_uses_is_an_orphan_and_what_nobody_reads_unread(settings: Settings) -> None:
    report = dataset("report", derived={"a": [("beside", "b")]})
    told = [
        ran("etl/load", [], ["lake/raw", "lake/log"]),
        said_of("lake/alone"),
        said_of("lake/gone", **DROP),
        ran("etl/sum", ["hive/raw"], [report]),
        said_of(dataset("raw", same=["hive/raw"])),
        ran("etl/mail", ["lake/report"], ["lake/temp"]),
        ran("etl/mail", [], [dataset("temp", **DROP)], 60),
        said_of("lake/beside"),
    ]
    lineage = keep_filed(settings, told, 3)
    assert names(lineage.unused_datasets()) == ["lake/alone"]
    assert names(lineage.unused_datasets(written=True)) == ["lake/log"]


def test_what_no_job_wrote_for_long_is_stale_to_the_hour(settings: Settings) -> None:
    told = [
        ran("etl/a", [], [dataset("a", same=["hive/a"])]),
        ran("etl/b", ["lake/source"], ["lake/b"]),
        ran("etl/c", [], ["lake/c"], 60),
        ran("etl/a", [], ["hive/a"], 180),
        ran("etl/b", ["lake/b"], [], 300),
    ]
    lineage = keep_filed(settings, told, 2)
    assert [(shown(one.node), one.written_ms) for one in lineage.stale_datasets(at_ms(180))] == [
        ("lake/b", at_ms(0)),
        ("lake/c", at_ms(60)),
    ]
    assert names(lineage.stale_datasets(at_ms(60))) == ["lake/b"]
    assert names(lineage.stale_datasets(at_ms(60) - 1)) == []
    assert len(lineage.stale_datasets(at_ms(240))) == 3


def test_two_jobs_that_write_one_dataset_come_with_their_hours(settings: Settings) -> None:
    around = {"parent": {"run": {"runId": "outer"}, "job": {"namespace": "etl", "name": "dag"}}}
    told = []
    for job, output, hours in (("a", "lake/out", 2), ("b", "hive/out", 3), ("task", "lake/by-task", 1)):
        facets = around if job == "task" else {}
        told.append(ran(f"etl/{job}", kind="START", run=job, facets=facets))
        told.append(ran(f"etl/{job}", [], [output], hours * 60, run=job, facets=facets))
    # An orchestrator that repeats what its task says.
    told.append(ran("etl/dag", [], ["lake/by-task"], 60))
    told.append(ran("etl/a", [], [dataset("out", same=["hive/out"])], 60))
    [found] = keep_filed(settings, told, 3).duplicate_producers()
    assert found.why == "output"
    assert found.dataset is not None
    assert found.dataset.name == "out"
    assert [(one.job.name, one.runs, one.took_s / 3_600) for one in found.producers] == [
        ("b", 1, 3.0),
        ("a", 2, 2.0),
    ]


def test_jobs_do_the_same_if_their_inputs_and_their_sql_are(home: Path) -> None:
    sql = "SELECT sum(total) FROM orders WHERE day = '2026-01-31' -- nightly"
    same = "select  SUM( total )\nfrom orders where day='x'"
    other = sql.replace("sum", "max")
    told = [
        ran("etl/one", ["lake/orders"], ["lake/a"], sql=sql),
        ran("etl/two", ["lake/orders"], ["lake/b"], sql=same),
        ran("etl/elsewhere", ["pond/orders"], ["lake/c"], sql=sql),
        ran("etl/other", ["lake/orders"], ["lake/d"], sql=other),
        ran("etl/unknown", [], ["lake/e"], sql=sql),
        ran("etl/unknown too", [], ["lake/f"], sql=sql),
    ]
    [found] = keep(home, told).duplicate_producers()
    assert (found.why, found.dataset) == ("sql", None)
    assert {one.job.name for one in found.producers} == {"one", "two"}


def test_texts_are_compared_without_what_does_not_matter() -> None:
    assert (
        normalized("SELECT a, 1 FROM t -- x\nWHERE s = 'it''s' /* y */;") == "select a , ? from t where s = ?"
    )
    assert normalized('SELECT "A", `B`') == 'select "A" , `B`'
    assert normalized('SELECT "A"') != normalized('SELECT "a"')
    # Whether the string ends before or after the name depends on the dialect.
    assert normalized(r"SELECT 'a\'' , b, 'c'") != normalized(r"SELECT 'a\'' , d, 'c'")
    began_s = time.process_time()
    for hostile in ("/*" * 300_000, "'" * 600_001, '"' * 600_001, "--" * 300_000, "'a" * 300_000):
        normalized(hostile)
    assert time.process_time() - began_s < 10


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


KINDS = st.sampled_from(["read", "write"])
USES = st.lists(st.tuples(KINDS, st.integers(0, 3), st.integers(0, 4), st.integers(0, 3)), max_size=8)


@hypothesis_settings(max_examples=6)
@given(USES, st.integers(0, 8), st.integers(0, 4))
def test_lists_are_the_model_s_wherever_the_events_are(
    tmp_path_factory: pytest.TempPathFactory, uses: list[tuple[str, int, int, int]], filed: int, before: int
) -> None:
    settings = settings_in(tmp_path_factory.mktemp("listing"))
    told = [said_of(f"lake/d{number}") for number in range(5)]
    for kind, job, one, hour in uses:
        reads, writes = ([f"lake/d{one}"] if kind == way else [] for way in ("read", "write"))
        told.append(ran(f"etl/j{job}", reads, writes, hour * 60))
    lineage = keep_filed(settings, told, filed)
    read, written = ({dataset for kind, _, dataset, _ in uses if kind == one} for one in ("read", "write"))
    last = {of: max(hour for kind, _, one, hour in uses if (kind, one) == ("write", of)) for of in written}
    writers = {of: {job for kind, job, one, _ in uses if (kind, one) == ("write", of)} for of in written}
    assert names(lineage.unused_datasets()) == [f"lake/d{of}" for of in range(5) if of not in read | written]
    assert names(lineage.unused_datasets(written=True)) == [f"lake/d{of}" for of in sorted(written - read)]
    assert names(lineage.stale_datasets(at_ms(before * 60))) == [
        f"lake/d{of}" for of in sorted(last) if last[of] < before
    ]
    assert {
        (one.dataset and one.dataset.name, frozenset(producer.job.name for producer in one.producers))
        for one in lineage.duplicate_producers()
    } == {(f"d{of}", frozenset(f"j{job}" for job in jobs)) for of, jobs in writers.items() if len(jobs) > 1}
