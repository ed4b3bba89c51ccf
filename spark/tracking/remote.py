"""Spark Connect sessions, which tag their work for the listener in their server.

The server's listener reports the tags of Spark's jobs if `spark.openlineage.capturedProperties` names
`spark.job.tags`, and the fold turns them into annotations.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from waybill.facets.overrides import job_tag

from ..errors import SparkSetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client import SparkConnectClient

_SCHEME = "sc://"


def remote_session(
    app_name: str,
    remote: str,
    *,
    conf: Mapping[str, str],
    tags: Mapping[str, str],
    settings: Mapping[str, object],
) -> SparkSession:
    """Connect to a server, or get the session that is already connected; see `waybill.spark.session`."""
    from pyspark.sql import SparkSession

    if not remote.startswith(_SCHEME):
        raise SparkSetupError(f"remote={remote!r} is not a server's address; use one like sc://host:15002")
    if settings:
        names = ", ".join(sorted(settings))
        raise SparkSetupError(
            f"with remote, this program stores no events, so {names} would have no effect; set that on the "
            "collector that the server's listener sends to"
        )
    # Without it PySpark may end the program, with status 0.
    if find_spec("grpc") is None:
        raise SparkSetupError("Spark Connect needs pip install 'pyspark[connect]'")
    ours = frozenset(_tag(key, value) for key, value in ({"app": app_name} | dict(tags)).items())
    builder = SparkSession.builder.appName(app_name).remote(remote)
    for name, value in conf.items():
        builder.config(name, value)
    session = builder.getOrCreate()
    _mark(session.client, ours)
    return session


def _mark(client: SparkConnectClient, tags: frozenset[str]) -> None:
    """Let a client add these tags to all its work; the tags of `addTag` apply to one thread only."""
    of_thread = type(client).get_tags
    client.get_tags = lambda: of_thread(client) | tags  # type: ignore[method-assign]


def _tag(key: str, value: str) -> str:
    if not key or "=" in key or "," in key + value:
        raise SparkSetupError(
            f"the tag {key!r} = {value!r} is invalid: its key is empty or contains =, or it contains a comma"
        )
    return job_tag(key, value)
