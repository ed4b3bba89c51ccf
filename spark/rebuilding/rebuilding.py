"""The rebuild on Spark: the embedded engine's code to read, fold, merge and compact, run by executors.

1. Each part of the source is read by one task; it gives records, and the runs that have none yet.
2. The runs are grouped by run id and folded in that order, one run in memory at a time.
3. All records are grouped by hour; each hour is written by one task, see `hours`.

Only reports are sent to the driver. Executors need Waybill installed, and the root at the same path, or the
object store's credentials. The rows of each part, and the list of written hours, are stored until everything
is done, so that the same command resumes an interrupted rebuild.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from waybill.exporter.compaction import summed
from waybill.exporter.names import HOUR_MS
from waybill.exporter.rebuilding import (
    CoalescedFlow,
    GatheredRuns,
    PartReport,
    RebuildReport,
    begin_job,
    counted_flows,
    decode_state,
    place_below,
)
from waybill.facets import ProvenanceRecord, RunState, records_of
from waybill.facets.arrow import SCHEMA
from waybill.transport.clock import SYSTEM_CLOCK
from waybill.transport.files import Files

from ..engine import explained, need_pandas
from .hours import HourTarget, decode_written, write_hour
from .reading import parts_read, read_parts, reports_in
from .stage_rows import PASSING, PIECE_RECORDS, Batches, record_rows, report_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from waybill.exporter import Source, Wanted

_WRITTEN: Final = "written binary"


def rebuild_on_spark(spark: SparkSession, source: Source, root: Path | str, wanted: Wanted) -> RebuildReport:
    """Rebuild a layout from stored entries, on Spark; the rows are those of `waybill.exporter.rebuild`.

    The session is any classic one. The root is a folder that is the same for the driver and every executor,
    or the URL of one in an object store, where the files are merged with existing ones. The same call resumes
    an interrupted rebuild.

    Raises:
        SparkSetupError: pandas or a JAR is missing.
        SparkTaskError: a task failed, and failed again when Spark retried it.
        SourceError: the source does not exist.
        DestinationError: the object store cannot be opened, or fails.
        RebuildError: the same rebuild is running in another process.
        OSError: the root cannot be written.
    """
    need_pandas()
    with begin_job(source, place_below(root, source, wanted), Files()) as job:
        target = HourTarget(root, job.plan.node, wanted.rule, job.store)
        report = _rebuild(spark, source, job.plan.parts, wanted, target)
        if not report.failed:
            job.finish()
    return report


def _rebuild(
    spark: SparkSession, source: Source, parts: list[str], wanted: Wanted, target: HourTarget
) -> RebuildReport:
    from pyspark import StorageLevel
    from pyspark.sql.functions import col

    began_s, coalesced = SYSTEM_CLOCK.monotonic_s(), list[CoalescedFlow]()
    resumed = parts_read(target.store, len(parts))
    before = target.written_before()
    hours_before = {written.report.hour for written in before}
    with explained():
        read = read_parts(spark, source, parts, wanted, target.store).persist(StorageLevel.DISK_ONLY)
        runs = read.where(col("run_id").isNotNull()).repartition("run_id").sortWithinPartitions("run_id")
        derived = runs.mapInArrow(lambda batches: _fold(wanted, batches), PASSING)
        records = read.where(col("did").isNotNull()).unionAll(derived)
        numbers = [hour.start_ms // HOUR_MS for hour in hours_before]
        records = records.where(~col("hour").isin(numbers))
        hours = records.repartition("hour").sortWithinPartitions("hour")
        try:
            reports = reports_in(spark, read)
            if any(report.has_summaries for report in reports):
                counted = runs.mapInArrow(lambda batches: _count(wanted, batches), PASSING)
                coalesced = [flow for report in reports_in(spark, counted) for flow in report.coalesced]
            touched = {hour for report in reports for hour in report.hours}
            with target.changing(touched - hours_before):
                rows = hours.mapInArrow(lambda batches: _write(target, batches), _WRITTEN).collect()
        finally:
            read.unpersist()
    written = [*before, *(decode_written(bytes(row.written)) for row in rows)]
    return RebuildReport.of(
        reports,
        summed(hour.report for hour in written),
        source=source.describe(),
        parts=len(parts),
        resumed=len(resumed),
        records=sum(hour.records for hour in written),
        coalesced=coalesced,
        began_s=began_s,
    )


def _fold(wanted: Wanted, batches: Batches) -> Iterator[pa.RecordBatch]:
    """The records of runs that come in order of their ids."""
    records: list[ProvenanceRecord] = []
    for state in _whole_runs(batches):
        records += records_of(state)
        if len(records) >= PIECE_RECORDS:
            yield from _rows(wanted, records)
            records = []
    yield from _rows(wanted, records)


def _count(wanted: Wanted, batches: Batches) -> Iterator[pa.RecordBatch]:
    """A report of the files that runs, in order of their ids, only count."""
    yield report_row(msgspec.json.encode(PartReport(coalesced=counted_flows(_whole_runs(batches), wanted))))


def _whole_runs(batches: Batches) -> Iterator[RunState]:
    """What is known of each run that does not carry the facet; they come in order of their ids."""
    pieces = (
        piece
        for batch in batches
        for piece in zip(batch["run_id"].to_pylist(), batch["state"].to_pylist(), strict=True)
    )
    for run_id, states in itertools.groupby(pieces, key=lambda piece: piece[0]):
        run = GatheredRuns()
        for _, state in states:
            run.add(run_id, decode_state(state))
        if (whole := run.states()[run_id]) is not None:
            yield whole


def _rows(wanted: Wanted, records: list[ProvenanceRecord]) -> Iterator[pa.RecordBatch]:
    for table in wanted.tables(records):
        yield from record_rows(table)


def _write(target: HourTarget, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Write hours, whose records come one hour after the other; a row about each."""
    pieces = (piece for batch in batches for piece in _by_hour(batch))
    for hour, tables in itertools.groupby(pieces, key=lambda piece: piece[0]):
        written = write_hour(target, hour, (table for _, table in tables))
        yield pa.record_batch({"written": pa.array([msgspec.json.encode(written)], pa.binary())})


def _by_hour(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.Table]]:
    """Cut rows that are in order of their hours into tables of the layout."""
    table = pa.table({name: batch[name] for name in SCHEMA.names}).cast(SCHEMA)
    start = 0
    for run in pc.value_counts(batch["hour"]).to_pylist():
        yield run["values"], table.slice(start, run["counts"])
        start += run["counts"]
