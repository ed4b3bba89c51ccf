"""One line that turns a PySpark program into a tracked one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from waybill.spark.errors import SparkSetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(
    app_name: str,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    tags: Mapping[str, str] | None = None,
    **settings: object,
) -> SparkSession:
    """Make a Spark session, or get the one there is, whose reads and writes leave a provenance trail.

    Everything needed is found or fetched: Java, the OpenLineage listener's JAR, an endpoint on this machine
    that keeps the listener's events in the journal. The session is a plain `SparkSession`; as a context
    manager it stops at the end of the block, and an exception that leaves the block is the application's
    end in ERROR.

    Args:
        app_name: the application's name, with which its jobs' names begin.
        master: as `spark.master`; None leaves it to Spark's own settings.
        conf: further Spark options.
        tags: run tags, which become annotations of every record, or fields when named ``waybill_<field>``.
        **settings: Waybill's settings by their names, for example ``provenance_enabled=True``.

    Raises:
        SparkSetupError: no Java, no JAR, or a session is running that is not tracked.
        SettingsError: a setting that is unknown or cannot be.
        SettingsConflictError: the home's live runner works with other settings.
        JournalError: the home cannot hold a journal.
    """
    builder = configure(_builder().appName(app_name), tags=tags, endpoint=None, **settings)
    for name, value in (conf or {}).items():
        builder.config(name, value)
    return (builder.master(master) if master else builder).getOrCreate()


def configure(
    builder: SparkSession.Builder,
    *,
    tags: Mapping[str, str] | None = None,
    endpoint: str | None = None,
    **settings: object,
) -> SparkSession.Builder:
    """Make a builder's `getOrCreate` do what `session` does; options may still be added to the builder.

    Args:
        builder: as from `SparkSession.builder`.
        tags: as for `session`.
        endpoint: the URL of an endpoint that runs elsewhere. Events then go there, this program keeps no
            journal, and final states are what the listener says.
        **settings: as for `session`.

    Returns:
        The builder given.

    Raises:
        SparkSetupError: it builds Spark Connect sessions, which have no listener here.
        SettingsError: a setting that is unknown or cannot be.
    """
    from waybill.spark.tracking.tracked import track

    return track(builder, tags=tags or {}, endpoint=endpoint, given=settings)


def _builder() -> SparkSession.Builder:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        what = "PySpark is not installed; install it with `pip install waybill-lineage[spark]`"
        raise SparkSetupError(what) from None
    return SparkSession.builder
