"""The rebuild on Spark: the embedded engine's code, run by executors."""

from __future__ import annotations

from waybill.spark.rebuilding.rebuilding import rebuild_on_spark

__all__ = [
    "rebuild_on_spark",
]
