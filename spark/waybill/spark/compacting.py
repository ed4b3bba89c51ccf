"""The compaction on Spark: an hour is a task, done by the embedded engine's own code.

The driver takes the root's turn and keeps its ledger; only reports come to it. Executors need Waybill
installed, and the root at the same path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from waybill.exporter import Hour, Report
from waybill.exporter.compact import HourReport, compact_hour, summed
from waybill.exporter.ledger import recorded
from waybill.exporter.listing import raw_hours
from waybill.exporter.turn import turn
from waybill.spark.engine import need_pandas
from waybill.transport.files import Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DECODER: Final = msgspec.json.Decoder(HourReport)


def compact_on_spark(spark: SparkSession, root: Path) -> Report:
    """Compact every hour that has raw files, on Spark; the rows are those of `waybill.exporter.Compactor`.

    One that was cut short is done by doing it again.

    Args:
        spark: the session; any classic one.
        root: the layout's root; the same folder for the driver and every executor.

    Raises:
        SparkSetupError: something is missing here.
        OSError: the root's ledger cannot be written.
    """
    need_pandas()
    hours = sorted(raw_hours(root))
    if not hours:
        return Report()
    files = Files()
    wanted = spark.createDataFrame(list(map(tuple, hours)), "day string, hour string")
    with turn(root, files), recorded(root, files, hours) as changed:
        rows = (
            wanted.repartition(len(hours))
            .mapInArrow(lambda batches: _compact(root, batches), "report binary")
            .collect()
        )
        # A task that Spark had to repeat says only what its last attempt did: the files tell all.
        changed.certain = False
    return summed(_DECODER.decode(bytes(row.report)) for row in rows)


def _compact(root: Path, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            report = compact_hour(root, Hour(row["day"], row["hour"]), Files())
            yield pa.record_batch({"report": pa.array([msgspec.json.encode(report)], pa.binary())})
