"""Spark as an engine: a session of Waybill's own, and what it needs on every executor."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import TYPE_CHECKING

from waybill.spark.errors import SparkSetupError
from waybill.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def plain_session(master: str | None = None) -> SparkSession:
    """A session that leaves no trail of its own, with this Python for its workers.

    Args:
        master: as `spark.master`; None: what Spark's own settings say, else all cores of this machine.

    Raises:
        SparkSetupError: PySpark or Java is missing.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        what = "PySpark is not installed; install it with `pip install waybill-lineage[spark]`"
        raise SparkSetupError(what) from None
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("waybill").config("spark.ui.showConsoleProgress", "false")
    return (builder.master(master) if master else builder).getOrCreate()


def need_pandas() -> None:
    """See that batches can pass.

    Raises:
        SparkSetupError: they cannot.
    """
    if importlib.util.find_spec("pandas") is None:
        raise SparkSetupError(
            "Spark passes no Arrow batches to Python without pandas; install it (pip install pandas)"
        )
