"""Spark as an engine: a session of Waybill's own, and what it needs on every executor."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from waybill.spark.errors import SparkSetupError, SparkTaskError
from waybill.spark.runtime import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_REASON: Final = re.compile(r"^\s*(?:Caused by: )?((?:[\w$]+\.)*[\w$]*(?:Error|Exception): .+)", re.MULTILINE)


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
    # Spark's own progress bars, where there is somebody to see them.
    shown = str(sys.stderr.isatty()).lower()
    builder = SparkSession.builder.appName("waybill").config("spark.ui.showConsoleProgress", shown)
    return (builder.master(master) if master else builder).getOrCreate()


@contextlib.contextmanager
def spoken() -> Iterator[None]:
    """Say in one sentence what Spark says in a hundred lines of two languages.

    Raises:
        SparkTaskError: Spark failed.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        # The innermost is told last.
        said = _REASON.findall(str(error)) or [str(error)]
        raise SparkTaskError(
            f"Spark could not do it ({' '.join(said[-1].split())}); see to that, and do it again: it goes on"
        ) from error


def need_pandas() -> None:
    """See that batches can pass.

    Raises:
        SparkSetupError: they cannot.
    """
    if importlib.util.find_spec("pandas") is None:
        raise SparkSetupError(
            "Spark passes no Arrow batches to Python without pandas; install it (pip install pandas)"
        )
