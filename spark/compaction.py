"""Compaction on Spark: each hour is a task that runs the embedded engine's own code.

The driver locks a root on a disk and keeps its ledger; only reports are sent to it. Executors need Waybill
installed, and the root at the same path, or the object store's credentials.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from waybill.exporter import open_destination
from waybill.exporter.compaction import (
    CompactionReport,
    HourReport,
    compact_hour,
    compact_remote_hour,
    remote_raw_hours,
    summed,
)
from waybill.exporter.directory import raw_hours
from waybill.exporter.ledger import hold_against_ledger, recorded
from waybill.exporter.names import Hour
from waybill.transport.files import Files

from .engine import explained, need_pandas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DECODER: Final = msgspec.json.Decoder(HourReport)


def compact_on_spark(spark: SparkSession, root: Path | str) -> CompactionReport:
    """Compact every hour that has raw files, on Spark.

    The rows are those of `waybill.exporter.Compactor`, or of `waybill.exporter.compaction.compact_remote` for
    the URL of an object store's folder. A folder must be the same for the driver and every executor. The
    session is any classic one. An interrupted compaction can simply be run again.

    Raises:
        SparkSetupError: pandas is missing.
        SparkTaskError: a task failed, and failed again when Spark retried it.
        DestinationError: the URL is of no known kind.
        SourceUnreachableError: the object store cannot be listed.
        OSError: the root's ledger cannot be written.
    """
    need_pandas()
    if isinstance(root, str):
        open_destination(root)
        return _compacted(spark, root, {hour: list(raws) for hour, raws in remote_raw_hours(root).items()})
    hours = raw_hours(root)
    if not hours:
        return CompactionReport()
    with recorded(root, Files(), hours, keeps=True) as changed:
        aside = hold_against_ledger(root, Files(), hours, changed)
        report = _compacted(spark, root, {hour: [] for hour in hours})
        # A retried task reports only its last attempt, so the ledger checks the files.
        changed.certain = False
    return msgspec.structs.replace(report, aside=(*aside, *report.aside))


def _compacted(spark: SparkSession, root: Path | str, hours: dict[Hour, list[str]]) -> CompactionReport:
    """Compact hours; in an object store they come with the paths of their raw files."""
    if not hours:
        return CompactionReport()
    rows = [(hour.day, hour.hour, raws) for hour, raws in sorted(hours.items())]
    wanted = spark.createDataFrame(rows, "day string, hour string, raws array<string>")
    with explained():
        reports = (
            wanted.repartition(len(hours))
            .mapInArrow(lambda batches: _compact(root, batches), "report binary")
            .collect()
        )
    return summed(_DECODER.decode(bytes(row.report)) for row in reports)


def _compact(root: Path | str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            hour = Hour(row["day"], row["hour"])
            if isinstance(root, str):
                report = compact_remote_hour(root, hour, row["raws"])
            else:
                report = compact_hour(root, hour, Files())
            yield pa.record_batch({"report": pa.array([msgspec.json.encode(report)], pa.binary())})
