"""Sessions of Spark Connect, which mark what they run for the listener in their server.

The server's listener hands on the tags of Spark's jobs where `spark.openlineage.capturedProperties` names
`spark.job.tags`, and the fold makes annotations of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from waybill.facets.overrides import job_tag
from waybill.spark.errors import SparkSetupError

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
    """Connect to a server, or get the session that is connected already; see `waybill.spark.session`."""
    from pyspark.sql import SparkSession

    if not remote.startswith(_SCHEME):
        raise SparkSetupError(f"remote={remote!r} is not the address of a server, as sc://host:15002 is")
    if settings:
        names = ", ".join(sorted(settings))
        raise SparkSetupError(
            f"with remote, this program keeps no events, so it has no use for {names}; give that to the "
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
    """Have a client give these tags to all that it runs; those of `addTag` are of one thread."""
    of_thread = type(client).get_tags
    client.get_tags = lambda: of_thread(client) | tags  # type: ignore[method-assign]


def _tag(key: str, value: str) -> str:
    if not key or "=" in key or "," in key + value:
        raise SparkSetupError(
            f"the tag {key!r} = {value!r} cannot be given: its key is empty or has an =, or it has a comma"
        )
    return job_tag(key, value)
