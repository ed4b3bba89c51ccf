"""The rebuild on Spark: the embedded engine's code to read, fold, merge and compact, run by executors.

1. Each part of the source is read by one task; it gives records, and the runs that have none yet.
2. The runs are brought together by run id and folded in order of it, one run in memory at a time.
3. All records are brought together by hour; the task that has an hour writes it, see `waybill.spark.hours`.

Nothing but reports comes to the driver. Executors need Waybill installed, and the root at the same path, or
the object store's credentials. Below a root the outcome of each part and hour is kept until all is done, so
that a rebuild that was cut short is taken up by giving the same order again.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from waybill.exporter import Hour, RebuildReport, Source, Wanted, hour_of, open_destination
from waybill.exporter.compact import summed
from waybill.exporter.layout import HOUR_MS
from waybill.exporter.rebuilding.part import PartReport, read_folded
from waybill.exporter.rebuilding.spill import Runs, add_run, decode_state, encode_state
from waybill.exporter.rebuilding.work import plan_work
from waybill.facets import ProvenanceRecord, records_of
from waybill.facets.arrow import SCHEMA
from waybill.spark.engine import need_pandas
from waybill.spark.hours import (
    HourWriting,
    RootTarget,
    Target,
    ThereTarget,
    decode_written,
    hour_number,
)
from waybill.transport.files import TEMPORARY_SUFFIX, Files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_INSTANTS: Final = ("created", "completed")
_PIECE_RECORDS: Final = 5_000

# Instants cross to Spark and back as numbers, so that no session's time zone can touch them.
_ROWS: Final = pa.schema(
    [
        pa.field("report", pa.binary()),
        pa.field("run_id", pa.string()),
        pa.field("state", pa.binary()),
        pa.field("hour", pa.int64()),
        *(pa.field(one.name, pa.int64() if one.name in _INSTANTS else one.type) for one in SCHEMA),
    ]
)
_SPARK_ROWS: Final = (
    "report binary, run_id string, state binary, hour long, did string, parent_did string, "
    "system_name string, data_source string, filename string, transforms array<string>, "
    "data_sink string, final_state string, created long, completed long, annotations map<string, string>"
)
_SPARK_WRITTEN: Final = "written binary"
_REPORT: Final = msgspec.json.Decoder(PartReport)
_KEPT: Final = pa.ipc.IpcWriteOptions(compression="lz4")

_Batches = Iterable[pa.RecordBatch]


def rebuild_on_spark(spark: SparkSession, source: Source, root: Path | str, wanted: Wanted) -> RebuildReport:
    """Rebuild a layout from stored entries, on Spark; the rows are those of `waybill.exporter.rebuild`.

    Args:
        spark: the session; any classic one.
        source: what is read. Executors open it themselves.
        root: where the files go: a folder that is the same for the driver and every executor, or the URL of
            one in an object store, where they are merged with what is there. What was cut short goes on in
            a folder, and is begun anew in an object store, where nothing it wrote does harm.
        wanted: which records.

    Raises:
        SparkSetupError: something is missing here.
        SourceError: the source is not there.
        DestinationError: the object store cannot be opened.
        RebuildError: the same rebuild is under way in another process.
        OSError: the root cannot be written.
    """
    need_pandas()
    if isinstance(root, str):
        open_destination(root)
        return _rebuild(spark, source, source.parts(), wanted, ThereTarget(root))
    with plan_work(source, root, wanted) as (plan, site):
        return _rebuild(spark, source, plan.parts, wanted, RootTarget(root, plan.node, site.work))


def _rebuild(
    spark: SparkSession, source: Source, parts: list[str], wanted: Wanted, target: Target
) -> RebuildReport:
    from pyspark import StorageLevel
    from pyspark.sql.functions import col

    began_s = time.monotonic()
    resumed = sum(path is not None and path.exists() for path in map(target.part_path, range(len(parts))))
    names = spark.createDataFrame(list(enumerate(parts)), "index long, part string")
    read = names.repartition(max(len(parts), 1)).mapInArrow(
        lambda batches: _read(source, wanted, target, batches), _SPARK_ROWS
    )
    read = read.persist(StorageLevel.DISK_ONLY)
    runs = read.where(col("run_id").isNotNull()).repartition("run_id").sortWithinPartitions("run_id")
    derived = runs.mapInArrow(lambda batches: _fold(wanted, batches), _SPARK_ROWS)
    records = read.where(col("did").isNotNull()).unionAll(derived)
    known = target.written()
    records = records.where(~col("hour").isin([hour_number(one.report.hour) for one in known]))
    hours = records.repartition("hour").sortWithinPartitions("hour")
    try:
        reports = _reports(read)
        touched = {hour for report in reports for hour in report.hours}
        with target.changing(touched - {one.report.hour for one in known}):
            rows = hours.mapInArrow(lambda batches: _write(target, batches), _SPARK_WRITTEN).collect()
        fresh = [decode_written(bytes(row.written)) for row in rows]
    finally:
        read.unpersist()
    written = [*known, *fresh]
    done = summed(one.report for one in written)
    return RebuildReport(
        source=source.describe(),
        parts=len(parts),
        resumed=resumed,
        entries=sum(report.entries for report in reports),
        records=sum(one.records for one in written),
        unreadable=sum(report.unreadable for report in reports),
        first_unreadable=next((one.first_unreadable for one in reports if one.first_unreadable), None),
        damaged=tuple(report.damaged for report in reports if report.damaged),
        failed=(*done.failed.values(), *done.unreadable.values()),
        files=done.published,
        seconds=round(time.monotonic() - began_s, 3),
    )


def _reports(read: DataFrame) -> list[PartReport]:
    """What became of each part, a row each."""
    rows = read.where("report IS NOT NULL").select("report").collect()
    return [_REPORT.decode(bytes(row.report)) for row in rows]


def _read(source: Source, wanted: Wanted, target: Target, batches: _Batches) -> Iterator[pa.RecordBatch]:
    """Read parts: rows of records, of runs, and one of the report for each part."""
    for batch in batches:
        for index, part in zip(batch["index"].to_pylist(), batch["part"].to_pylist(), strict=True):
            path = target.part_path(index)
            if path is None:
                yield from _read_part(source, part, wanted)
                continue
            if not path.exists():
                _keep(path, _read_part(source, part, wanted))
            with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as kept:
                yield from (kept.get_batch(at) for at in range(kept.num_record_batches))


def _read_part(source: Source, part: str, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    report = PartReport()
    for records, runs in read_folded(source, part, wanted, report):
        report.hours |= _hours(records, runs)
        yield from _record_rows(records)
        yield from _run_rows(runs)
    yield from _rows(report=[msgspec.json.encode(report)])


def _keep(path: Path, batches: _Batches) -> None:
    """Keep what a part came to; it is there whole or not at all."""
    files = Files()
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")
    with pa.OSFile(str(temporary), "wb") as file, pa.ipc.new_file(file, _ROWS, options=_KEPT) as writer:
        for batch in batches:
            writer.write_batch(batch)
    files.fsync(temporary)
    files.rename(temporary, path)
    files.fsync_folder(path.parent)


def _hours(records: pa.Table, runs: Runs) -> set[Hour]:
    """The hours that records are in, and those that the runs' may be in."""
    hours = set(pc.divide(records["completed"].cast(pa.int64()), HOUR_MS).unique().to_pylist())
    # What decides about a run in the end is one of the endings that its pieces know.
    endings = (state.ending for state in runs.values() if state is not None)
    hours |= {ending.time_us // (1_000 * HOUR_MS) for ending in endings if ending is not None}
    return {hour_of(hour * HOUR_MS) for hour in hours}


def _fold(wanted: Wanted, batches: _Batches) -> Iterator[pa.RecordBatch]:
    """Fold runs that come in order of their ids."""
    records: list[ProvenanceRecord] = []
    run: Runs = {}
    for batch in batches:
        for run_id, state in zip(batch["run_id"].to_pylist(), batch["state"].to_pylist(), strict=True):
            if run_id not in run:
                records += _records_of(run)
                run = {}
            add_run(run, run_id, decode_state(state))
        if len(records) >= _PIECE_RECORDS:
            yield from _record_rows(wanted.table(records))
            records = []
    yield from _record_rows(wanted.table(records + _records_of(run)))


def _records_of(run: Runs) -> list[ProvenanceRecord]:
    return [one for state in run.values() if state is not None for one in records_of(state)]


def _write(target: Target, batches: _Batches) -> Iterator[pa.RecordBatch]:
    """Write hours, whose records come one hour after the other; a row about each."""
    writing: HourWriting | None = None
    for batch in batches:
        for hour, rows in _by_hour(batch):
            if writing is None or writing.hour != hour:
                if writing is not None:
                    yield _written(writing)
                writing = target.begin(hour)
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


def _record_rows(records: pa.Table) -> Iterator[pa.RecordBatch]:
    for batch in records.combine_chunks().to_batches(_PIECE_RECORDS):
        columns = {name: batch[name] for name in SCHEMA.names}
        for name in _INSTANTS:
            columns[name] = columns[name].cast(pa.int64())
        yield from _rows(hour=pc.divide(columns["completed"], HOUR_MS), **columns)


def _run_rows(runs: Runs) -> Iterator[pa.RecordBatch]:
    if runs:
        yield from _rows(run_id=list(runs), state=[encode_state(state) for state in runs.values()])


def _rows(**columns: Any) -> Iterator[pa.RecordBatch]:  # noqa: ANN401 - lists or arrays, by column
    """One batch, with nulls in the columns that are not given."""
    length = len(next(iter(columns.values())))
    arrays = [
        pa.nulls(length, field.type) if field.name not in columns else _array(columns[field.name], field.type)
        for field in _ROWS
    ]
    yield pa.RecordBatch.from_arrays(arrays, schema=_ROWS)


def _array(values: Any, kind: pa.DataType) -> pa.Array:  # noqa: ANN401 - a list or an array
    return values if isinstance(values, pa.Array) else pa.array(values, kind)
