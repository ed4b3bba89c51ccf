"""The JARs that Waybill adds to Spark: the OpenLineage listener, and the JDBC driver for PostgreSQL.

Each is downloaded once from a Maven repository. Version and SHA-256 are fixed here, so any mirror will do.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from waybill.transport.errors import MissingExtraError
from waybill.transport.files import TEMPORARY_SUFFIX, Files, sweep
from waybill.transport.locks import locked

from ..errors import SparkSetupError
from .java import cache_folder

_NOT_FOLLOWED: Final = {"hudi": "Hudi", "paimon": "Paimon"}
"""Table formats of which neither the listener nor a plan says enough, by a part of their packages' names."""
LISTENER_VERSION: Final = "1.53.0"
"""The version of openlineage-spark; `match_failures` was checked against it."""

LISTENER_CLASS: Final = "io.openlineage.spark.agent.OpenLineageSparkListener"
"""What `spark.extraListeners` names."""

DRIVER_VERSION: Final = "42.7.14"

MAVEN_CENTRAL: Final = "https://repo1.maven.org/maven2"
MIRROR_VARIABLE: Final = "WAYBILL_MAVEN_URL"

_LISTENER_SHA256: Final = {
    "2.12": "9fe28ee2e5b2cb535cd51b6572394bddeb684bf0c58650a698cf7724ce62d94d",
    "2.13": "5d84b0ae7e72909b5aae7ed87df878bf06b28d9ac3005765c3529d0a66dbae6f",
}
_DRIVER_SHA256: Final = "73914527305a40cce504b0d3d90b23caf565136912d607ae8ae7c5895512332c"
_TIMEOUTS_S: Final = (10, 60)
"""How long a repository has to accept a connection, and how long it may be silent."""
_CHUNK_BYTES: Final = 2**20
_SCALA: Final = re.compile(r"scala-library-(2\.\d+)\.[^/]*\.jar")
_DEFAULTS_LINE: Final = re.compile(r"\s*(?P<name>[^#!\s=:]\S*?)\s*[\s=:]\s*(?P<value>.*?)\s*")


class Jar(NamedTuple):
    """A JAR as it was published; its coordinates are ``group:artifact:version``."""

    what: str
    coordinates: str
    sha256: str

    @property
    def path(self) -> str:
        """Its path in a repository."""
        group, artifact, version = self.coordinates.split(":")
        return f"{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}.jar"


def spark_home() -> Path:
    """The Spark that PySpark starts: SPARK_HOME, or the one in the package `pyspark`.

    Raises:
        MissingExtraError: PySpark is not installed.
    """
    try:
        from pyspark.find_spark_home import _find_spark_home
    except ImportError:
        raise MissingExtraError("PySpark", "spark") from None
    return Path(_find_spark_home())


def scala_version(home: Path) -> str:
    """The Scala that a Spark was built for: ``2.12`` (PySpark 3.5) or ``2.13`` (PySpark 4).

    Raises:
        SparkSetupError: the folder contains no Spark.
    """
    for path in sorted((home / "jars").glob("scala-library-*.jar")):
        if match := _SCALA.fullmatch(path.name):
            return match[1]
    what = f"{home} contains no Spark (no jars/scala-library-*.jar); set SPARK_HOME to a folder that does"
    raise SparkSetupError(what)


def spark_defaults(home: Path) -> dict[str, str]:
    """The options in ``spark-defaults.conf``; the program's own options replace them, including lists."""
    path = Path(os.environ.get("SPARK_CONF_DIR") or home / "conf") / "spark-defaults.conf"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    return {match["name"]: match["value"] for line in lines if (match := _DEFAULTS_LINE.fullmatch(line))}


def formats_not_followed(options: Mapping[str, str]) -> str:
    """What to say of the table formats in a session's options that are not followed; else empty."""
    keys = "spark.sql.extensions", "spark.sql.catalog", "spark.jars"
    named = " ".join(value.lower() for name, value in options.items() if name.startswith(keys))
    found = [shown for part, shown in _NOT_FOLLOWED.items() if part in named]
    return (
        f"tables of {' and '.join(found)} are not followed: a write to one may leave no record"
        if found
        else ""
    )


def listener_path(scala: str, *, cache: Path | None = None) -> Path:
    """The path of the listener's JAR in the cache, whether or not it is there yet."""
    return cache_folder(cache) / f"openlineage-spark_{scala}-{LISTENER_VERSION}.jar"


def fetch_listener(*, cache: Path | None = None) -> Path:
    """The listener's JAR, downloaded if this machine does not have it yet (43 MB, once).

    Raises:
        SparkSetupError: it could not be downloaded, or is not the one that was published.
    """
    scala = scala_version(spark_home())
    if scala not in _LISTENER_SHA256:
        what = f"openlineage-spark {LISTENER_VERSION} is not available for Scala {scala}"
        raise SparkSetupError(f"{what}; use a Spark for one of {', '.join(_LISTENER_SHA256)}")
    coordinates = f"io.openlineage:openlineage-spark_{scala}:{LISTENER_VERSION}"
    return fetch_jar(Jar("listener", coordinates, _LISTENER_SHA256[scala]), cache=cache)


def fetch_driver(*, cache: Path | None = None) -> Path:
    """The JAR of PostgreSQL's JDBC driver, downloaded like the listener's (1 MB, once)."""
    coordinates = f"org.postgresql:postgresql:{DRIVER_VERSION}"
    return fetch_jar(Jar("JDBC driver", coordinates, _DRIVER_SHA256), cache=cache)


def fetch_jar(jar: Jar, *, cache: Path | None = None) -> Path:
    """A JAR in the cache folder, downloaded if it is not there yet."""
    path = cache_folder(cache) / jar.path.rpartition("/")[2]
    if path.exists():
        return path
    # Other processes that need a JAR wait for the one that downloads it.
    with locked(path.with_name("fetch.lock")):
        if not path.exists():
            sweep(Files(), path.parent, path.name)
            _fetch(jar, path)
    return path


def _fetch(jar: Jar, path: Path) -> None:
    files, problems = Files(), []
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")
    for repository in _repositories(os.environ, spark_defaults(spark_home())):
        shown = urlsplit(repository)._replace(netloc=urlsplit(repository).netloc.rpartition("@")[2]).geturl()
        try:
            digest = _download(f"{repository.rstrip('/')}/{jar.path}", temporary)
            if digest == jar.sha256:
                files.fsync(temporary)
                files.rename(temporary, path)
                files.fsync_folder(path.parent)
                return
            problems.append(f"{shown}: its SHA-256 is {digest} instead of {jar.sha256}")
        except OSError as error:  # requests' own are such, too
            problems.append(f"{shown}: {' '.join(str(error).split())}")
        finally:
            files.remove(temporary)
    what = f"the {jar.what} {jar.coordinates} could not be downloaded"
    way_out = (
        f"allow access to Maven Central, set a mirror in {MIRROR_VARIABLE} or in spark.jars.repositories "
        f"(spark-defaults.conf), or put the JAR at {path}"
    )
    raise SparkSetupError(f"{what} ({'; '.join(problems)}); {way_out}")


def _repositories(env: Mapping[str, str], defaults: Mapping[str, str]) -> list[str]:
    """The repositories to try, in order: only the mirror if set, else Spark's, then Maven Central."""
    if mirror := env.get(MIRROR_VARIABLE):
        return [mirror]
    named = (url.strip() for url in defaults.get("spark.jars.repositories", "").split(","))
    return [*filter(None, named), MAVEN_CENTRAL]


def _download(url: str, path: Path) -> str:
    """Download a file with the proxies and credentials of the environment; returns its SHA-256."""
    import requests

    digest = hashlib.sha256()
    with requests.Session() as session, path.open("wb") as file:
        # Without REQUESTS_CA_BUNDLE: SSL_CERT_FILE, or the system's certificates.
        session.verify = ssl.get_default_verify_paths().cafile or True
        with session.get(url, stream=True, timeout=_TIMEOUTS_S) as answer:
            answer.raise_for_status()
            for chunk in answer.iter_content(_CHUNK_BYTES):
                file.write(chunk)
                digest.update(chunk)
    return digest.hexdigest()
