"""Uses whose types users rely on, for mypy and pyright to judge; nothing is run.

That every public name is there and has a type is judged by what `write_names.py` beside it writes.
"""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

from openlineage.client import OpenLineageClient
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import waybill
from waybill.exporter import IncompleteError
from waybill.lineage import Dependencies, LastRun, ReachedNode, Records
from waybill.lineage.analyzers import Analyzer, Catalog, Found, inferred
from waybill.spark import SparkRows, configure, session
from waybill.transport import (
    DuplicateFileError,
    FileContent,
    FlushReport,
    Projection,
    SettingsError,
    Step,
    TrackerStateError,
    WaybillConfig,
    WaybillTransport,
)


def the_client_takes_the_transport(home: Path) -> OpenLineageClient:
    transport = WaybillTransport(WaybillConfig.from_dict({"home": str(home), "runner": "none"}))
    assert_type(transport.close(1.5), bool)
    assert_type(transport.first_with("xxh3-128:00"), FileContent | None)
    return OpenLineageClient(transport=transport)


def a_program_tracks_its_files(client: OpenLineageClient) -> None:
    waybill.Tracker(client, system_name="edge")
    with (
        waybill.Tracker(home="/data", provenance_enabled=True) as tracker,
        tracker.file(Path("a"), data_source="in", data_sinks={"b": Path("b")}, on_duplicate="raise") as file,
        file.transform("decompress"),
    ):
        assert_type(file, waybill.TrackedFile)
        assert_type((file.did, file.parent_did), tuple[str, str | None])
        file.annotate({"rows": 3}, kind="orders")
        for child in file.split(["a-1.csv", "a-2.csv"], data_sinks={"archive": "/data/archive"}):
            child.egress("archive", dataset="s3://bucket/archive", schema={"a": "INT"}, size_bytes=3)
            child.branch().egress("archive", dataset=("bigquery", "a.b.c"), schema=StructType([]))
        joined = tracker.join([file], "b.csv", data_source="daily", data_sinks={"archive": "/data/archive"})
        assert_type(tracker.adopt(file.did, parents=[joined, "0193"], transforms=["a"]), waybill.TrackedFile)
        file.error(ValueError("damaged"))
    for row in tracker.rows([{"url": "https://a.example"}], dataset=lambda row: row["url"]):
        assert_type(row, dict[str, str])
    assert_type(tracker.close(), bool)


async def a_file_is_tracked_in_an_event_loop() -> None:
    async with waybill.AsyncTracker() as tracker, await tracker.file("a", data_source="in") as file:
        with file.transform("enrich"):
            assert_type(await file.split(["b"]), list[waybill.AsyncTrackedFile])
        await file.branch().egress("out", dataset="/data/out", schema={"a": "INT"}, size_bytes=1)
        assert_type(await tracker.join([file, "0193"], "c", data_source="daily"), waybill.AsyncTrackedFile)


@waybill.tracked(inputs=["s3://lake/in"], outputs=["s3://lake/out"])
def a_function_is_tracked(number: int) -> str:
    return str(number)


def a_tracked_function_keeps_its_type() -> None:
    assert_type(a_function_is_tracked(1), str)


def errors_tell_their_parts(error: waybill.WaybillError) -> None:
    match error:
        case SettingsError():
            assert_type((error.name, error.origin), tuple[str, str])
        case TrackerStateError():
            assert_type((error.file, error.call), tuple[str, str])
        case DuplicateFileError():
            assert_type((error.file, error.fingerprint, error.duplicate_of), tuple[str, str, str])
        case _:
            raise error


def a_flush_reports(settings: waybill.Settings) -> None:
    report = waybill.flush(settings, timeout_s=1.5, on_progress=print)
    assert_type(report, FlushReport)
    assert_type((report.files, report.left), tuple[tuple[str, ...], dict[str, int]])


def records_are_found_again(root: Path) -> Records:
    ended = (waybill.FinalState.ERROR, waybill.FinalState.CANCELLED)
    try:
        found = waybill.find(root, waybill.Query(final_state=ended, annotations={"kind": "orders"}, limit=5))
    except IncompleteError as error:
        raise SystemExit(", ".join(error.unread)) from None
    assert_type(found[0], waybill.ProvenanceRecord)
    assert_type((found[0].parent_did, found[0].annotations), tuple[str | None, dict[str, str] | None])
    return found


def files_and_datasets_are_asked_about(place: str) -> LastRun | None:
    lineage = waybill.Lineage.open(place)
    assert_type(lineage.trace("0193", up=True, down=False, depth=3), waybill.Journey)
    assert_type([file.filename for file in lineage.ancestors("0193")], list[str | None])
    found = lineage.dependencies("lake/orders", up=None, down=2, columns=True)
    assert_type(found, Dependencies)
    assert_type(found.upstream.nodes, tuple[ReachedNode, ...])
    return found.last_run


def one_line_tracks_a_spark_pipeline(tracker: waybill.Tracker) -> None:
    with session("orders", master="local[2]", conf={"a": "b"}, tags={"team": "x"}, home="/data") as spark:
        assert_type(spark, SparkSession)
    builder = configure(SparkSession.Builder().appName("orders"), endpoint="http://localhost:8090")
    assert_type(builder.getOrCreate(), SparkSession)
    with SparkRows(spark, dataset=lambda row: row["url"], tracker=tracker) as rows:
        spark.range(1).foreachPartition(rows.of_partition(lambda _: None))


class Mine:
    """A projection and an analyzer of somebody's own."""

    name = "mine"
    covers = "the dashboards that no event tells of"
    confidence = 0.8
    stores = False

    def step(self) -> Step:
        return Step(applied=1, retry_s=0.5, problem="the disk is full; free space there")

    def pending(self) -> int:
        return 0

    def finish(self) -> None: ...

    def close(self) -> None: ...

    def analyze(self, event: Found, catalog: Catalog) -> Found | None:
        assert event["job"], catalog
        return {"outputs": [{"namespace": "dashboard", "name": "week"}], "job": {"facets": inferred("a")}}


def anybody_can_write_one() -> tuple[Projection, Analyzer]:
    return Mine(), Mine()
