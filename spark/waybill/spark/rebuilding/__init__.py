"""The rebuild on Spark: the embedded engine's code, run by executors."""

from waybill.spark.rebuilding.rebuilding import rebuild_on_spark as rebuild_on_spark
