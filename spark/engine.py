"""Spark as an engine: Waybill's own session, and its errors in one sentence."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from waybill.facets.causes import telling

from .errors import SparkSetupError, SparkTaskError
from .runtime import find_java, spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def plain_session(master: str | None = None) -> SparkSession:
    """An untracked session whose workers run this Python.

    Args:
        master: as `spark.master`; None: what Spark's own settings say, else all cores of this machine.

    Raises:
        MissingExtraError: PySpark is missing.
        SparkSetupError: Java is missing.
    """
    spark_home()  # without PySpark there is none
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Spark's progress bars are for a terminal.
    shown = str(sys.stderr.isatty()).lower()
    builder = SparkSession.builder.appName("waybill").config("spark.ui.showConsoleProgress", shown)
    return (builder.master(master) if master else builder).getOrCreate()


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Reduce the hundred lines of an error from Spark to the one sentence of a `SparkTaskError`."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        what = f"Spark failed ({telling(str(error))})"
        raise SparkTaskError(f"{what}; fix that and run it again: it continues where it stopped") from error


def need_pandas() -> None:
    """Raise a `SparkSetupError` if pandas is missing: PySpark needs it to pass Arrow batches."""
    if importlib.util.find_spec("pandas") is None:
        raise SparkSetupError(
            "Spark needs pandas to pass Arrow batches to Python; install it (pip install pandas)"
        )
