"""JARs that Spark is given, each fetched once from Maven Central, by Spark's own `spark.jars.packages`.

The OpenLineage listener is one, the JDBC driver for PostgreSQL the other.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from waybill.spark.errors import SparkSetupError
from waybill.spark.runtime.cache import cache_folder
from waybill.spark.runtime.java import Java, find_java
from waybill.spark.runtime.trust import network_options

LISTENER_VERSION: Final = "1.53.0"
"""The version of openlineage-spark; `match_failures` was checked against it."""

LISTENER_CLASS: Final = "io.openlineage.spark.agent.OpenLineageSparkListener"
"""What `spark.extraListeners` names."""

DRIVER_VERSION: Final = "42.7.8"
"""The version of PostgreSQL's JDBC driver."""

_FETCH_TIMEOUT_S: Final = 600
_SCALA: Final = re.compile(r"scala-library-(2\.\d+)\.[^/]*\.jar")
_DOES_NOTHING: Final = "org.apache.hadoop.util.VersionInfo"
"""A class with a `main` that ends at once; it comes with every Spark."""
_WORDS_KEPT: Final = 300


class _Jar(NamedTuple):
    """One that is kept on this machine.

    Attributes:
        what: a word or two for it.
        coordinates: as `spark.jars.packages` takes them.
        path: where it is kept.
    """

    what: str
    coordinates: str
    path: Path


def spark_home() -> Path:
    """The Spark that PySpark starts: SPARK_HOME, or the one inside the package `pyspark`.

    Raises:
        SparkSetupError: PySpark is not installed.
    """
    try:
        from pyspark.find_spark_home import _find_spark_home
    except ImportError:
        what = "PySpark is not installed; install it with `pip install waybill-lineage[spark]`"
        raise SparkSetupError(what) from None
    return Path(_find_spark_home())


def scala_version(home: Path) -> str:
    """The Scala that a Spark was built for: ``2.12`` (PySpark 3.5) or ``2.13`` (PySpark 4).

    Raises:
        SparkSetupError: the folder holds no Spark.
    """
    for path in sorted((home / "jars").glob("scala-library-*.jar")):
        if match := _SCALA.fullmatch(path.name):
            return match[1]
    what = f"{home} holds no Spark (no jars/scala-library-*.jar); set SPARK_HOME to one that does"
    raise SparkSetupError(what)


def coordinates(scala: str) -> str:
    """The listener's Maven coordinates, as `spark.jars.packages` takes them."""
    return f"io.openlineage:openlineage-spark_{scala}:{LISTENER_VERSION}"


def listener_path(scala: str, *, cache: Path | None = None) -> Path:
    """Where the JAR is kept, whether or not it is there yet."""
    return cache_folder(cache) / f"openlineage-spark_{scala}-{LISTENER_VERSION}.jar"


def fetch_listener(java: Java | None = None, *, cache: Path | None = None) -> Path:
    """The listener's JAR, fetched if this machine does not have it yet (43 MB, once).

    A Spark process of its own resolves it, so that the settings for repositories in `spark-defaults.conf`
    (`spark.jars.repositories`, `spark.jars.ivySettings`) hold and the pipeline's session has nothing to
    resolve.

    Args:
        java: the Java to do it with; `find_java` when None.
        cache: where to keep it; the cache folder when None.

    Raises:
        SparkSetupError: it could not be fetched.
    """
    scala = scala_version(spark_home())
    return _kept(_Jar("listener", coordinates(scala), listener_path(scala, cache=cache)), java)


def fetch_driver(java: Java | None = None, *, cache: Path | None = None) -> Path:
    """The JAR of PostgreSQL's JDBC driver, fetched as `fetch_listener` does it (1 MB, once).

    Args:
        java: the Java to do it with; `find_java` when None.
        cache: where to keep it; the cache folder when None.

    Raises:
        SparkSetupError: it could not be fetched.
    """
    path = cache_folder(cache) / f"postgresql-{DRIVER_VERSION}.jar"
    return _kept(_Jar("JDBC driver", f"org.postgresql:postgresql:{DRIVER_VERSION}", path), java)


def _kept(jar: _Jar, java: Java | None) -> Path:
    if not jar.path.exists():
        with _alone(jar.path.with_name("fetch.lock")):
            if not jar.path.exists():
                _fetch(jar, java or find_java(cache=jar.path.parent))
    return jar.path


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Others that want the JAR wait for the one that fetches it."""
    with lock.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _fetch(jar: _Jar, java: Java) -> None:
    folder = Path(tempfile.mkdtemp(prefix="ivy-", dir=jar.path.parent))
    try:
        fetched = _resolve(jar, java, folder)
        fetched.replace(jar.path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _resolve(jar: _Jar, java: Java, folder: Path) -> Path:
    home = spark_home()
    options = network_options(os.environ, folder / "trusted.jks", bundled=java.bundled)
    given = os.environ.get("SPARK_SUBMIT_OPTS", "")
    environment = os.environ | {
        "JAVA_HOME": str(java.home),
        "SPARK_SUBMIT_OPTS": " ".join([*map(shlex.quote, options), given]).strip(),
    }
    command = [str(home / "bin" / "spark-submit"), "--master", "local", "--deploy-mode", "client"]
    command += ["--class", _DOES_NOTHING, "--conf", f"spark.jars.packages={jar.coordinates}"]
    command += ["--conf", f"spark.jars.ivy={folder}", "spark-internal"]
    try:
        resolved = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_FETCH_TIMEOUT_S,
            check=False,
        )
        said = resolved.stdout + resolved.stderr
    except (OSError, subprocess.SubprocessError) as error:
        said = str(error)
    # Ivy puts the group before the name.
    fetched = next((folder / "jars").glob(f"*_{jar.path.name}"), None)
    if fetched is None:
        raise SparkSetupError(
            f"the {jar.what} {jar.coordinates} could not be fetched ({_reason(said)}); let Maven Central be "
            "reached, set spark.jars.repositories in spark-defaults.conf to a mirror, or put the JAR at "
            f"{jar.path}"
        )
    return fetched


def _reason(said: str) -> str:
    """The line of Ivy's long report that tells the most."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower() or "exception" in line.lower()]
    return (telling or lines or ["no reason given"])[0][:_WORDS_KEPT]
