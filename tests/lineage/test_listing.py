"""Datasets that may be in excess, and jobs that do the same."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from events import members
from hypothesis import given, settings as hypothesis_settings, strategies as st
from keeping import index, keep, keep_filed, settings_in

from waybill.lineage.graph import shown
from waybill.lineage.graph.listing import normalized

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from waybill.lineage import ListedDataset
    from waybill.transport import Settings

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def ran(
    job: str,
    hour: int = 0,
    *,
    sql: str = "",
    facets: Mapping[str, object] | None = None,
    **others: Any,  # noqa: ANN401 - any JSON value
) -> dict[str, Any]:
    namespace, _, name = job.partition("/")
    of_job = {"sql": {"query": sql}} if sql else {}
    at = (NOON + timedelta(hours=hour)).isoformat()
    named = {"namespace": namespace, "name": name, "facets": of_job}
    return members(f"{job} at {hour}", at=at, job=named, facets=facets or {}, **others)


def ms(hour: int) -> int:
    return int((NOON + timedelta(hours=hour)).timestamp() * 1_000)


def names(found: Iterable[ListedDataset]) -> list[str]:
    return [shown(one.node) for one in found]


def only_named(name: str, **facets: object) -> dict[str, Any]:
    """A dataset that an event of its own names, and no job uses."""
    return {
        "eventTime": NOON.isoformat(),
        "producer": "https://example.org/tests",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/DatasetEvent",
        "dataset": {"namespace": "lake", "name": name, "facets": facets},
    }


def dropped(name: str) -> dict[str, Any]:
    facets = {"lifecycleStateChange": {"lifecycleStateChange": "DROP"}}
    return {"namespace": "lake", "name": name, "facets": facets}


@pytest.mark.parametrize("filed", [0, 3, 9])
def test_what_nobody_uses_is_an_orphan_and_what_nobody_reads_unread(settings: Settings, filed: int) -> None:
    link = {"identifiers": [{"namespace": "hive", "name": "raw", "type": "TABLE"}]}
    derived = {"fields": {"a": {"inputFields": [{"namespace": "lake", "name": "beside", "field": "b"}]}}}
    report = {"namespace": "lake", "name": "report", "facets": {"columnLineage": derived}}
    told = [
        ran("etl/load", outputs=["lake/raw", "lake/log"]),
        only_named("alone"),
        only_named("gone", lifecycleStateChange={"lifecycleStateChange": "DROP"}),
        ran("etl/sum", inputs=["hive/raw"], outputs=[report]),
        only_named("raw", symlinks=link),
        ran("etl/mail", inputs=["lake/report"], outputs=["lake/temp"]),
        ran("etl/mail", 1, outputs=[dropped("temp")]),
        only_named("beside"),
    ]
    lineage = keep_filed(settings, told, filed)
    assert names(lineage.unused_datasets()) == ["lake/alone"]
    assert names(lineage.unused_datasets(written=True)) == ["lake/log"]


def test_what_no_job_wrote_for_long_is_stale_to_the_hour(settings: Settings) -> None:
    link = {"identifiers": [{"namespace": "hive", "name": "a", "type": "TABLE"}]}
    told = [
        ran("etl/a", 0, outputs=[{"namespace": "lake", "name": "a", "facets": {"symlinks": link}}]),
        ran("etl/b", 0, inputs=["lake/source"], outputs=["lake/b"]),
        ran("etl/c", 1, outputs=["lake/c"]),
        ran("etl/a", 3, outputs=["hive/a"]),
        ran("etl/b", 5, inputs=["lake/b"]),
    ]
    keep(settings.home, told[:2])
    index(settings)
    lineage = keep(settings.home, told[2:])
    assert [(shown(one.node), one.written_ms) for one in lineage.stale_datasets(ms(3))] == [
        ("lake/b", ms(0)),
        ("lake/c", ms(1)),
    ]
    assert names(lineage.stale_datasets(ms(1))) == ["lake/b"]
    assert names(lineage.stale_datasets(ms(1) - 1)) == []
    assert len(lineage.stale_datasets(ms(4))) == 3


def test_two_jobs_that_write_one_dataset_come_with_their_hours(settings: Settings) -> None:
    link = {"identifiers": [{"namespace": "hive", "name": "out", "type": "TABLE"}]}
    around = {"parent": {"run": {"runId": "outer"}, "job": {"namespace": "etl", "name": "dag"}}}
    told = []
    for job, output, hours in (
        ("etl/a", "lake/out", 2),
        ("etl/b", "hive/out", 3),
        ("etl/task", "lake/by-task", 1),
    ):
        facets = around if job == "etl/task" else {}
        began = ran(job, 0, facets=facets) | {"eventType": "START"}
        ended = ran(job, hours, facets=facets, outputs=[output])
        ended["run"] = began["run"]
        told += [began, ended]
    told.append(
        ran("etl/dag", 1, outputs=["lake/by-task"])
    )  # an orchestrator that repeats what its task says
    told.append(ran("etl/a", 1, outputs=[{"namespace": "lake", "name": "out", "facets": {"symlinks": link}}]))
    keep(settings.home, told[:3])
    index(settings)
    [found] = keep(settings.home, told[3:]).duplicate_producers()
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
    told = [
        ran("etl/one", sql=sql, inputs=["lake/orders"], outputs=["lake/a"]),
        ran("etl/two", sql=same, inputs=["lake/orders"], outputs=["lake/b"]),
        ran("etl/elsewhere", sql=sql, inputs=["pond/orders"], outputs=["lake/c"]),
        ran("etl/other", sql=sql.replace("sum", "max"), inputs=["lake/orders"], outputs=["lake/d"]),
        ran("etl/unknown", sql=sql, outputs=["lake/e"]),
        ran("etl/unknown too", sql=sql, outputs=["lake/f"]),
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


KINDS = st.sampled_from(["read", "write"])
USES = st.lists(st.tuples(KINDS, st.integers(0, 3), st.integers(0, 4), st.integers(0, 3)), max_size=8)


@hypothesis_settings(max_examples=6)
@given(USES, st.integers(0, 8), st.integers(0, 4))
def test_lists_are_the_model_s_wherever_the_events_are(
    tmp_path_factory: pytest.TempPathFactory, uses: list[tuple[str, int, int, int]], filed: int, before: int
) -> None:
    settings = settings_in(tmp_path_factory.mktemp("listing"))
    told = [only_named(f"d{number}") for number in range(5)] + [
        ran(
            f"etl/j{job}",
            hour,
            inputs=[of] if kind == "read" else [],
            outputs=[of] if kind == "write" else [],
        )
        for kind, job, of, hour in ((kind, job, f"lake/d{one}", hour) for kind, job, one, hour in uses)
    ]
    lineage = keep_filed(settings, told, filed)
    read, written = ({dataset for kind, _, dataset, _ in uses if kind == one} for one in ("read", "write"))
    last = {of: max(hour for kind, _, one, hour in uses if (kind, one) == ("write", of)) for of in written}
    writers = {of: {job for kind, job, one, _ in uses if (kind, one) == ("write", of)} for of in written}
    assert names(lineage.unused_datasets()) == [f"lake/d{of}" for of in range(5) if of not in read | written]
    assert names(lineage.unused_datasets(written=True)) == [f"lake/d{of}" for of in sorted(written - read)]
    assert names(lineage.stale_datasets(ms(before))) == [
        f"lake/d{of}" for of in sorted(last) if last[of] < before
    ]
    assert {
        (one.dataset and one.dataset.name, frozenset(producer.job.name for producer in one.producers))
        for one in lineage.duplicate_producers()
    } == {(f"d{of}", frozenset(f"j{job}" for job in jobs)) for of, jobs in writers.items() if len(jobs) > 1}
