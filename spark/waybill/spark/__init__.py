"""A PySpark pipeline's side: one line makes a session whose reads and writes leave a provenance trail.

Importing this package loads neither pyspark nor Java, and pyarrow only for a rebuild or a compaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from waybill.spark.engine import plain_session
from waybill.spark.errors import SparkSetupError, SparkTaskError
from waybill.spark.jar import LISTENER_VERSION, fetch_listener, listener_path, scala_version, spark_home
from waybill.spark.java import Java, find_java
from waybill.spark.session import configure, session

if TYPE_CHECKING:
    from waybill.spark.compacting import compact_on_spark
    from waybill.spark.rebuilding import rebuild_on_spark

__all__ = [
    "LISTENER_VERSION",
    "Java",
    "SparkSetupError",
    "SparkTaskError",
    "compact_on_spark",
    "configure",
    "fetch_listener",
    "find_java",
    "listener_path",
    "plain_session",
    "rebuild_on_spark",
    "scala_version",
    "session",
    "spark_home",
]


def __getattr__(name: str) -> object:
    if name == "compact_on_spark":
        from waybill.spark.compacting import compact_on_spark

        return compact_on_spark
    if name == "rebuild_on_spark":
        from waybill.spark.rebuilding import rebuild_on_spark

        return rebuild_on_spark
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
