"""The first stage of a rebuild on Spark: a task reads each part of the source and stores its rows."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from waybill.exporter.names import HOUR_MS, Hour, hour_of
from waybill.exporter.rebuilding import PartReport, read_folded
from waybill.exporter.sources import MarquezDatabaseSource, Stored

from .jdbc import fetch, small_batches, stored_events
from .stage_rows import PASSING, ROWS, Batches, record_rows, report_row, run_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from waybill.exporter import Source, Wanted
    from waybill.exporter.exporting import BlobStore
    from waybill.exporter.rebuilding import StatesByRun

_PREFIX: Final = "part-"
_REPORT: Final = msgspec.json.Decoder(PartReport)
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")


def parts_read(store: BlobStore, count: int) -> set[int]:
    """The numbers of the parts that an earlier attempt of this job has read."""
    names = set(store.names())
    return {index for index in range(count) if _name(index) in names}


def read_parts(
    spark: SparkSession, source: Source, parts: list[str], wanted: Wanted, store: BlobStore
) -> DataFrame:
    """The rows that all parts give, as `PASSING` describes them; each part is a task."""
    numbered = list(enumerate(parts))
    if not isinstance(source, MarquezDatabaseSource):
        return _read_each(spark, source, numbered, wanted, store)
    done = parts_read(store, len(parts))
    read = _read_each(spark, source, [one for one in numbered if one[0] in done], wanted, store)
    if rest := [one for one in numbered if one[0] not in done]:
        events = fetch(spark, source, [part for _, part in rest])
        fetched = events.mapInArrow(lambda found: _read_fetched(source, rest, wanted, store, found), PASSING)
        read = read.unionAll(fetched)
    return read


def reports_in(spark: SparkSession, read: DataFrame) -> list[PartReport]:
    """The result of each part; this is the first use of `read`, so all its work is done here."""
    with small_batches(spark):
        rows = read.where("report IS NOT NULL").select("report").collect()
    return [_REPORT.decode(bytes(row.report)) for row in rows]


def _read_each(
    spark: SparkSession, source: Source, numbered: list[tuple[int, str]], wanted: Wanted, store: BlobStore
) -> DataFrame:
    names = spark.createDataFrame(numbered, "index long, part string")
    return names.repartition(max(len(numbered), 1)).mapInArrow(
        lambda batches: _read(source, wanted, store, batches), PASSING
    )


def _read(source: Source, wanted: Wanted, store: BlobStore, batches: Batches) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for index, part in zip(batch["index"].to_pylist(), batch["part"].to_pylist(), strict=True):
            read, place = partial(source.read, part), partial(source.place, part)
            yield from _recorded(store, index, _read_part(read, place, wanted))


def _read_fetched(
    source: MarquezDatabaseSource,
    numbered: list[tuple[int, str]],
    wanted: Wanted,
    store: BlobStore,
    batches: Batches,
) -> Iterator[pa.RecordBatch]:
    """Read the events of one part that Spark fetched; their times show which part it is."""
    batches = (batch for batch in batches if batch.num_rows)
    if (first := next(batches, None)) is None:
        return
    starts = [source.window(part)[0] for _, part in numbered]
    index, part = numbered[bisect_right(starts, first["time_us"][0].as_py()) - 1]
    read, place = partial(stored_events, itertools.chain([first], batches)), partial(source.place, part)
    yield from _recorded(store, index, _read_part(read, place, wanted))


def _read_part(
    read: Callable[[], Iterable[Sequence[Stored]]], place: Callable[[int], str], wanted: Wanted
) -> Iterator[pa.RecordBatch]:
    """The rows of one part: its records, its runs, and its report."""
    report = PartReport()
    for records, runs in read_folded(read, place, wanted, report):
        report.hours |= _hours(records, runs)
        yield from record_rows(records)
        yield from run_rows(runs)
    yield report_row(msgspec.json.encode(report))


def _recorded(store: BlobStore, index: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a part, stored before they are passed on; if they are already stored, nothing is read."""
    name = _name(index)
    if (file := store.open(name)) is None:
        with (
            store.writing(name) as path,
            pa.OSFile(str(path), "wb") as sink,
            pa.ipc.new_file(sink, ROWS, options=_OPTIONS) as writer,
        ):
            for batch in batches:
                writer.write_batch(batch)
        file = store.open(name)
    if file is None:
        raise FileNotFoundError(f"{name} was removed by another run of the same rebuild, which has ended")
    with file, pa.ipc.open_file(file) as reader:
        yield from (reader.get_batch(number) for number in range(reader.num_record_batches))


def _hours(records: pa.Table, runs: StatesByRun) -> set[Hour]:
    """The hours that the records are in, and those that the runs' records may be in."""
    hours = set(pc.divide(records["completed"].cast(pa.int64()), HOUR_MS).unique().to_pylist())
    # A run's records are in the hour of one of the endings in its pieces.
    parts = (part for state in runs.values() if state is not None for part in state.parts)
    hours |= {ending.time_us // (1_000 * HOUR_MS) for part in parts for ending in part.endings}
    return {hour_of(hour * HOUR_MS) for hour in hours}


def _name(index: int) -> str:
    return f"{_PREFIX}{index:07}.arrow"
