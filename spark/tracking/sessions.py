"""One line that turns a PySpark program into a tracked one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..errors import SparkSetupError
from ..runtime import spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(
    app_name: str,
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    tags: Mapping[str, str] | None = None,
    **settings: object,
) -> SparkSession:
    """Create a Spark session, or get the running one, whose reads and writes leave a provenance trail.

    Java and the OpenLineage listener's JAR are found or downloaded, and an endpoint in this process stores
    the listener's events in the journal. The session is a plain `SparkSession`. As a context manager it stops
    at the end of the block, and an exception that leaves the block ends the application as ERROR.

    With `remote`, this is a Spark Connect session. Its listener runs in the server, whose options say where
    events go. The session tags its work, so that each record names its program.

    Args:
        app_name: the application's name, which is the prefix of its jobs' names; with `remote`, the
            annotation ``app``.
        master: as `spark.master`; None leaves it to Spark's own settings.
        remote: the address of a Spark Connect server, ``sc://host:15002``.
        conf: further Spark options.
        tags: run tags, which become annotations of every record, or fields when named ``waybill_<field>``.
        **settings: Waybill's settings by their names, for example ``provenance_enabled=True``.

    Raises:
        SparkSetupError: there is no Java or no JAR, or an untracked session is running; or an argument is
            invalid together with `remote`.
        SettingsError: a setting is unknown or invalid.
        SettingsConflictError: the home's live runner uses other settings, and these are strict.
        JournalError: the home cannot hold a journal.
    """
    spark_home()  # without PySpark there is none
    if remote is not None:
        if master is not None:
            raise SparkSetupError("master and remote exclude each other: a server has its own master")
        from .remote import remote_session

        return remote_session(app_name, remote, conf=conf or {}, tags=tags or {}, settings=settings)
    from pyspark.sql import SparkSession

    builder = configure(SparkSession.builder.appName(app_name), tags=tags, endpoint=None, **settings)
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
    """Make this builder's `getOrCreate` do the same as `session`; you can still add options.

    Args:
        builder: as from `SparkSession.builder`; it is also what is returned.
        tags: as for `session`.
        endpoint: the URL of another endpoint. Events then go there, this program has no journal, and final
            states are the listener's.
        **settings: as for `session`.

    Raises:
        SparkSetupError: the builder creates Spark Connect sessions; use `session` for these.
        SettingsError: a setting is unknown or invalid.
    """
    from .tracked import track

    return track(builder, tags=tags or {}, endpoint=endpoint, given=settings)
