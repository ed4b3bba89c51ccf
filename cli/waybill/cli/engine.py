"""The engines that a command can work on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import typer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Engine(StrEnum):
    """What does the work."""

    EMBEDDED = "embedded"
    SPARK = "spark"


MASTER: Final[Any] = typer.Option(
    metavar="URL", help="Spark's master.", show_default="Spark's own settings, else local"
)


@contextlib.contextmanager
def spark_for(master: str | None) -> Iterator[SparkSession]:
    """A session for one command.

    Raises:
        SparkSetupError: PySpark or Java is missing.
    """
    from waybill.spark import plain_session

    spark = plain_session(master)
    try:
        yield spark
    finally:
        spark.stop()
