"""For PySpark pipelines: one line creates a session whose reads and writes leave a provenance trail.

Importing this package loads neither pyspark nor Java, and pyarrow only for a rebuild or a compaction.
"""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .compaction import compact_on_spark as compact_on_spark
    from .engine import plain_session as plain_session
    from .errors import SparkSetupError as SparkSetupError, SparkTaskError as SparkTaskError
    from .rebuilding import rebuild_on_spark as rebuild_on_spark
    from .rows import SparkRows as SparkRows
    from .runtime import (
        LISTENER_VERSION as LISTENER_VERSION,
        Java as Java,
        fetch_listener as fetch_listener,
        find_java as find_java,
        formats_not_followed as formats_not_followed,
        listener_path as listener_path,
        scala_version as scala_version,
        spark_defaults as spark_defaults,
        spark_home as spark_home,
    )
    from .tracking import configure as configure, session as session

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
