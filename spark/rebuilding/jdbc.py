"""Marquez's database, read by Spark's own partitioned JDBC source: a window of time is a partition.

The session takes the JDBC driver's JAR to the executors; they need no PostgreSQL client. The bounds are those
of the embedded engine, whole microseconds in the text of the statement, so that neither the session's time
zone nor Java's notion of an instant moves an event to another window.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from waybill.exporter.sources import Stored
from waybill.transport import Kind

from ..runtime import fetch_driver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from waybill.exporter.sources import MarquezDatabaseSource

    from .stage_rows import Batches

_BATCH_ROWS: Final = 500
_BATCH_OPTION: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_DRIVER: Final = "org.postgresql.Driver"


def stored_events(batches: Batches) -> Iterator[Sequence[Stored]]:
    """The events of one part that Spark fetched, in the form of a source."""
    count = 0
    for batch in batches:
        texts = batch["event"].to_pylist()
        yield [Stored(at, Kind.OPENLINEAGE, "", text.encode()) for at, text in enumerate(texts, count + 1)]
        count += len(texts)


def fetch(spark: SparkSession, source: MarquezDatabaseSource, parts: Sequence[str]) -> DataFrame:
    """The events of some parts, a partition each, with the columns `event` and `time_us`."""
    spark.sql(f"ADD JAR '{fetch_driver()}'")
    database = source.jdbc()
    return spark.read.jdbc(
        database.url,
        database.table,
        predicates=[database.within(*source.window(part)) for part in parts],
        properties={**database.properties, "driver": _DRIVER, "fetchsize": str(_BATCH_ROWS)},
    )


@contextlib.contextmanager
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Pass fewer rows at a time to Python: an event may be large."""
    before = spark.conf.get(_BATCH_OPTION) or ""  # it has a default value
    spark.conf.set(_BATCH_OPTION, _BATCH_ROWS)
    try:
        yield
    finally:
        spark.conf.set(_BATCH_OPTION, before)
