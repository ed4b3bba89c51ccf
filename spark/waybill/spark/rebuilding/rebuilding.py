"""The rebuild on Spark: the embedded engine's code to read, fold, merge and compact, run by executors.

1. Each part of the source is read by one task; it gives records, and the runs that have none yet.
2. The runs are brought together by run id and folded in order of it, one run in memory at a time.
3. All records are brought together by hour; the task that has an hour writes it, see `hours`.

Nothing but reports comes to the driver. Executors need Waybill installed, and the root at the same path, or
the object store's credentials. The outcome of each part and hour is kept until all is done, so that a rebuild
that was cut short is taken up by giving the same order again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from waybill.exporter.compaction import summed
from waybill.exporter.rebuilding import RebuildReport, StatesByRun, add_run, begin_job, decode_state
from waybill.facets import ProvenanceRecord, records_of
from waybill.facets.arrow import SCHEMA
from waybill.spark.engine import need_pandas, spoken
from waybill.spark.rebuilding.hours import (
    HourTarget,
    HourWriting,
    RemoteTarget,
    RootTarget,
    begin_hour,
    decode_written,
    hour_number,
    written_before,
)
from waybill.spark.rebuilding.job_store import FolderJobStore, begin_there
from waybill.spark.rebuilding.reading import parts_done, read_parts, reports_in
from waybill.spark.rebuilding.stage_rows import PASSING, PIECE_RECORDS, Batches, record_rows
from waybill.transport.files import Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from waybill.exporter import Source, Wanted

_WRITTEN: Final = "written binary"


def rebuild_on_spark(spark: SparkSession, source: Source, root: Path | str, wanted: Wanted) -> RebuildReport:
    """Rebuild a layout from stored entries, on Spark; the rows are those of `waybill.exporter.rebuild`.

    Args:
        spark: the session; any classic one.
        source: what is read. Executors open it themselves.
        root: where the files go: a folder that is the same for the driver and every executor, or the URL of
            one in an object store, where they are merged with what is there. The same call goes on where
            one was cut short.
        wanted: which records.

    Raises:
        SparkSetupError: something is missing here.
        SparkTaskError: a task failed, and failed again when Spark repeated it.
        SourceError: the source is not there.
        DestinationError: the object store cannot be opened, or fails.
        RebuildError: the same rebuild is under way in another process.
        OSError: the root cannot be written.
    """
    need_pandas()
    if isinstance(root, str):
        there = begin_there(source, root, wanted)
        report = _rebuild(spark, source, there.parts, wanted, RemoteTarget(root, there.kept))
        if not report.failed:
            there.finish()
        return report
    with begin_job(source, root, wanted, Files()) as work:
        plan, site = work.plan, work.site
        target = RootTarget(root, plan.node, FolderJobStore(site.work))
        report = _rebuild(spark, source, plan.parts, wanted, target)
        if not report.failed:
            work.finish()
    return report


def _rebuild(
    spark: SparkSession, source: Source, parts: list[str], wanted: Wanted, target: HourTarget
) -> RebuildReport:
    from pyspark import StorageLevel
    from pyspark.sql.functions import col

    began_s = time.monotonic()
    resumed = parts_done(target.kept, len(parts))
    known = written_before(target.kept)
    with spoken():
        read = read_parts(spark, source, parts, wanted, target.kept).persist(StorageLevel.DISK_ONLY)
        runs = read.where(col("run_id").isNotNull()).repartition("run_id").sortWithinPartitions("run_id")
        derived = runs.mapInArrow(lambda batches: _fold(wanted, batches), PASSING)
        records = read.where(col("did").isNotNull()).unionAll(derived)
        records = records.where(~col("hour").isin([hour_number(one.report.hour) for one in known]))
        hours = records.repartition("hour").sortWithinPartitions("hour")
        try:
            reports = reports_in(spark, read)
            touched = {hour for report in reports for hour in report.hours}
            with target.changing(touched - {one.report.hour for one in known}):
                rows = hours.mapInArrow(lambda batches: _write(target, batches), _WRITTEN).collect()
        finally:
            read.unpersist()
    written = [*known, *(decode_written(bytes(row.written)) for row in rows)]
    done = summed(one.report for one in written)
    return RebuildReport(
        source=source.describe(),
        parts=len(parts),
        resumed=len(resumed),
        entries=sum(report.entries for report in reports),
        records=sum(one.records for one in written),
        unreadable=sum(report.unreadable for report in reports),
        first_unreadable=next((one.first_unreadable for one in reports if one.first_unreadable), None),
        damaged=tuple(report.damaged for report in reports if report.damaged),
        failed=(*done.failed.values(), *done.unreadable.values()),
        aside=done.aside,
        files=done.published,
        seconds=round(time.monotonic() - began_s, 3),
    )


def _fold(wanted: Wanted, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Fold runs that come in order of their ids."""
    records: list[ProvenanceRecord] = []
    run: StatesByRun = {}
    for batch in batches:
        for run_id, state in zip(batch["run_id"].to_pylist(), batch["state"].to_pylist(), strict=True):
            if run_id not in run:
                records += _records_of(run)
                run = {}
            add_run(run, run_id, decode_state(state))
        if len(records) >= PIECE_RECORDS:
            yield from record_rows(wanted.table(records))
            records = []
    yield from record_rows(wanted.table(records + _records_of(run)))


def _records_of(run: StatesByRun) -> list[ProvenanceRecord]:
    return [one for state in run.values() if state is not None for one in records_of(state)]


def _write(target: HourTarget, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Write hours, whose records come one hour after the other; a row about each."""
    writing: HourWriting | None = None
    for batch in batches:
        for hour, rows in _by_hour(batch):
            if writing is None or writing.hour != hour:
                if writing is not None:
                    yield _written(writing)
                writing = begin_hour(target, hour)
            writing.add(rows)
    if writing is not None:
        yield _written(writing)


def _written(writing: HourWriting) -> pa.RecordBatch:
    return pa.record_batch({"written": pa.array([msgspec.json.encode(writing.finish())], pa.binary())})


def _by_hour(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.Table]]:
    """Cut rows that are in order of their hours into tables of the layout."""
    table = pa.table({name: batch[name] for name in SCHEMA.names}).cast(SCHEMA)
    start = 0
    for run in pc.value_counts(batch["hour"]).to_pylist():
        yield run["values"], table.slice(start, run["counts"])
        start += run["counts"]
