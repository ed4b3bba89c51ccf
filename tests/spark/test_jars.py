"""How JARs come to this machine: from a repository of the test's own, and really."""

from __future__ import annotations

import hashlib
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from waybill.spark import (
    SparkSetupError,
    fetch_listener,
    formats_not_followed,
    listener_path,
    scala_version,
    spark_home,
)
from waybill.spark.runtime import LISTENER_CLASS, fetch_driver
from waybill.spark.runtime.jars import Jar, fetch_jar

NO_NETWORK = ("Max retries exceeded", "timed out", "Connection aborted")
JAR = bytes(range(256)) * 9_000
PUBLISHED = Jar("tool", "org.example.tools:tool:1.2", hashlib.sha256(JAR).hexdigest())


@dataclass
class Repository:
    """A Maven repository that has every file, with the same content."""

    url: str = ""
    content: bytes = JAR
    promised_bytes: int = 0
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    """One that is the mirror."""
    found = Repository()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(found.promised_bytes or len(found.content)))
            self.end_headers()
            self.wfile.write(found.content)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}/maven"
    monkeypatch.setenv("WAYBILL_MAVEN_URL", f"{found.url}/")
    yield found
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_jar_comes_from_maven_central_and_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WAYBILL_MAVEN_URL", raising=False)
    try:
        path = fetch_listener(cache=tmp_path)
    except SparkSetupError as error:
        if any(word in str(error) for word in NO_NETWORK):
            pytest.skip(f"Maven Central cannot be reached from here: {error}")
        raise
    assert path == listener_path(scala_version(spark_home()), cache=tmp_path)
    assert f"{LISTENER_CLASS.replace('.', '/')}.class" in zipfile.ZipFile(path).namelist()
    assert {found.name for found in tmp_path.iterdir()} == {path.name, "fetch.lock"}
    before = path.stat().st_mtime_ns
    assert fetch_listener(cache=tmp_path).stat().st_mtime_ns == before


def test_the_repositories_of_spark_s_own_settings_are_asked_one_after_the_other(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WAYBILL_MAVEN_URL", raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    named = f"spark.jars.repositories http://127.0.0.1:9/none, {repository.url}\n"
    (tmp_path / "spark-defaults.conf").write_text(named)
    assert fetch_jar(PUBLISHED, cache=tmp_path / "cache").read_bytes() == JAR


def test_a_mirror_is_asked_instead_of_maven_central_once_though_several_want_a_jar(
    repository: Repository, tmp_path: Path
) -> None:
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: fetch_jar(PUBLISHED, cache=tmp_path), range(4)))
    assert {path.read_bytes() for path in paths} == {JAR}
    assert repository.asked == ["/maven/org/example/tools/tool/1.2/tool-1.2.jar"]


def test_a_jar_that_is_not_the_published_one_is_refused_with_the_way_out_and_not_kept(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYBILL_MAVEN_URL", repository.url.replace("//", "//user:secret@"))
    repository.content = JAR[1:]
    with pytest.raises(SparkSetupError, match="its SHA-256 is") as refused:
        fetch_jar(PUBLISHED, cache=tmp_path)
    said = str(refused.value)
    assert "set a mirror in" in said
    assert str(tmp_path / "tool-1.2.jar") in said
    assert "secret" not in said
    assert [found.name for found in tmp_path.iterdir()] == ["fetch.lock"]


def test_a_download_that_breaks_off_leaves_nothing_and_neither_does_one_that_was_killed(
    repository: Repository, tmp_path: Path
) -> None:
    (tmp_path / ".tool-1.2.jar.0000.tmp").write_bytes(b"of a process that was killed")
    repository.promised_bytes = 2 * len(JAR)
    with pytest.raises(SparkSetupError, match="could not be downloaded"):
        fetch_jar(PUBLISHED, cache=tmp_path)
    assert [found.name for found in tmp_path.iterdir()] == ["fetch.lock"]
    repository.promised_bytes = 0
    assert fetch_jar(PUBLISHED, cache=tmp_path).read_bytes() == JAR


def test_a_network_without_maven_central_is_said_in_one_sentence_with_the_way_out_which_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy", "WAYBILL_MAVEN_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SparkSetupError, match=r"spark\.jars\.repositories") as refused:
        fetch_listener(cache=tmp_path)
    assert "\n" not in str(refused.value)
    assert "1.53.0" in str(refused.value)
    assert [found.name for found in tmp_path.iterdir()] == ["fetch.lock"]
    path = listener_path(scala_version(spark_home()), cache=tmp_path)
    assert str(refused.value).endswith(f"or put the JAR at {path}")
    path.write_bytes(b"a copy")
    assert fetch_listener(cache=tmp_path) == path


def test_only_the_published_listener_for_the_scala_of_this_spark_is_taken(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a mirror has under their names, only the published listener and driver are taken."""
    repository.content = b"another"
    for fetch in (fetch_listener, fetch_driver):
        with pytest.raises(SparkSetupError, match="its SHA-256 is"):
            fetch(cache=tmp_path)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "scala-library-3.3.0.jar").touch()
    with pytest.raises(SparkSetupError, match="SPARK_HOME"):
        fetch_listener(cache=tmp_path)
    scala = tmp_path / "jars" / "scala-library-2.11.12.jar"
    scala.touch()
    with pytest.raises(SparkSetupError, match=r"not available for Scala 2\.11"):
        fetch_listener(cache=tmp_path)
    scala.rename(scala.with_name("scala-library-2.12.18.jar"))
    assert listener_path(scala_version(tmp_path)).name == "openlineage-spark_2.12-1.53.0.jar"


@pytest.mark.parametrize(
    ("option", "value", "named"),
    [
        ("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension", "Hudi"),
        ("spark.sql.catalog.lake", "org.apache.paimon.spark.SparkCatalog", "Paimon"),
        ("spark.jars.packages", "org.apache.hudi:hudi-spark4.0-bundle_2.13:1.1.0", "Hudi"),
        ("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog", ""),
        ("spark.app.name", "hudi", ""),
    ],
)
def test_a_table_format_that_is_not_followed_is_named(option: str, value: str, named: str) -> None:
    says = f"tables of {named} are not followed: a write to one may leave no record" if named else ""
    assert formats_not_followed({option: value}) == says
