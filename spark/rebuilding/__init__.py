"""The rebuild on Spark: executors run the embedded engine's code."""

from .rebuilding import rebuild_on_spark
