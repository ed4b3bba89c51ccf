"""How what clients run by Spark Connect ends: on a server that only has the listener, and an event log."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark
import pytest
from endings import Ending, ending, endings
from waiting import wait_until

import waybill.spark
from waybill.facets import FinalState
from waybill.spark import fetch_listener, find_java, scala_version, spark_home
from waybill.spark.runtime import LISTENER_CLASS

if TYPE_CHECKING:
    from served import Collector
    from stage import Play, Scene

pytestmark = [
    pytest.mark.spark_truth,
    pytest.mark.skipif(
        find_spec("grpc_status") is None,
        reason="Spark Connect's packages are not here; make test-spark-truth has them",
    ),
]

COMPLETE, ERROR, CANCELLED = FinalState.COMPLETE, FinalState.ERROR, FinalState.CANCELLED
STARTS_WITHIN_S: Final = 120
ENDS_WITHIN_S: Final = 120
SERVER: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"

BEGIN = """
import threading, time
from concurrent.futures import ThreadPoolExecutor

REMOTE, NAME = sys.argv[3:5]
TAGS = {"team": "of " + NAME, "waybill_filename": NAME + ".csv"}
spark = waybill.spark.session(NAME, remote=REMOTE, tags=TAGS)
"""

CLIENT = (
    BEGIN
    + """
bad = spark.range(9).repartition(2).selectExpr("if(id = 3, raise_error('from " + NAME + "'), id) AS x")

def parquet(name, rows):
    attempt(name, lambda: rows.write.parquet(OUT + "/" + name))

parquet("good", spark.range(9))
parquet("failed", bad)
parquet("good", spark.range(5))
with ThreadPoolExecutor(1) as threads:
    threads.submit(parquet, "in_a_thread", spark.range(9)).result()
spark.stop()
tell()
"""
)

KILLED = (
    BEGIN
    + """
import os, signal
from pyspark.sql import functions as F

def wait():
    while not os.path.exists(OUT + "/slow/_temporary"):
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGKILL)

threading.Thread(target=wait, daemon=True).start()
spark.range(6).repartition(2).withColumn("x", F.udf(lambda value: time.sleep(1) or value, "long")("id")) \\
    .write.parquet(OUT + "/slow")
"""
)


def connect_jars() -> list[str]:
    """The JARs of the server, which are in the package since PySpark 4."""
    if list((spark_home() / "jars").glob("spark-connect_*.jar")):
        return []
    name, version = f"spark-connect_{scala_version(spark_home())}", pyspark.__version__
    path = Path.home() / ".m2/repository/org/apache/spark" / name / version / f"{name}-{version}.jar"
    if not path.exists():
        pytest.skip(
            f"{path} is missing; get it with: mvn dependency:get -Dartifact=org.apache.spark:{name}:{version}"
        )
    return [str(path)]


@dataclass
class Server:
    """A server that `waybill spark submit` started; its events go to an endpoint with the same home."""

    process: subprocess.Popen[bytes]
    address: str
    home: Path

    def stop(self) -> None:
        """End it as its host would, and wait until what its event log has is told."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(ENDS_WITHIN_S)


@pytest.fixture(scope="module")
def server(endpoint: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    conf = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.connect.grpc.binding.port": str(port),
        "spark.jars": ",".join([str(fetch_listener()), *connect_jars()]),
        "spark.extraListeners": LISTENER_CLASS,
        "spark.openlineage.transport.type": "http",
        "spark.openlineage.transport.url": endpoint.url,
        "spark.openlineage.namespace": "tests",
        "spark.openlineage.appName": "server",
        "spark.openlineage.capturedProperties": "spark.job.tags",
    }
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    submit = [sys.executable, "-m", "waybill.cli", "spark", "submit"]
    command = [*submit, *options, "--class", SERVER, "spark-internal"]
    own = {"JAVA_HOME": str(find_java().home), "PYSPARK_PYTHON": sys.executable, "TMPDIR": str(folder)}
    env = {**os.environ, "WAYBILL_HOME": str(endpoint.home), "WAYBILL_RUNNER": "none", **own}
    said = folder / "said"
    with ExitStack() as stack:
        out = stack.enter_context(said.open("wb"))
        process = subprocess.Popen(command, env=env, stdout=out, stderr=out, cwd=folder)
        stack.callback(process.wait)
        stack.callback(process.terminate)
        wait_until(
            lambda: process.poll() is not None or b"Spark Connect server started" in said.read_bytes(),
            STARTS_WITHIN_S,
        )
        assert process.poll() is None, said.read_text()[-4000:]
        yield Server(process, f"sc://127.0.0.1:{port}", endpoint.home)


@pytest.fixture(scope="module")
def scenes(server: Server, play: Play) -> dict[str, Scene]:
    """Two clients that worked at the same time, and one that was killed; their server has ended, too."""

    def client(name: str) -> Scene:
        return play(CLIENT, arguments=(server.address, name), home=server.home)

    with ThreadPoolExecutor(2) as threads:
        found = dict(zip(("orders", "stock"), threads.map(client, ("orders", "stock")), strict=True))
    own = {"arguments": (server.address, "killed"), "home": server.home}
    found["killed"] = play(KILLED, status=-signal.SIGKILL, tells=False, **own)
    wait_until(lambda: is_recorded(found["killed"], "slow"), ENDS_WITHIN_S)
    server.stop()
    for scene in found.values():
        scene.ran.read()
    return found


def is_recorded(scene: Scene, name: str) -> bool:
    scene.ran.read()
    return bool(scene.states(name))


def said(scene: Scene, name: str) -> list[tuple[FinalState, str | None, str | None]]:
    """Final state, application and cause in each record of a folder."""
    found = [(one.final_state, one.annotations or {}) for one in scene.ran.written(name)]
    return [(state, notes.get("app"), notes.get("errorCause")) for state, notes in found]


@pytest.mark.parametrize("name", ["orders", "stock"])
@endings(
    [
        Ending("Spark Connect", "a client's write succeeds"),
        Ending("Spark Connect", "a task of a client's write fails"),
        Ending("Spark Connect", "a client writes to a folder that exists"),
        Ending("Spark Connect", "two clients work at once"),
    ]
)
def test_writes_of_two_clients_that_work_at_once(scenes: dict[str, Scene], name: str) -> None:
    scene, has_tags = scenes[name], not pyspark.__version__.startswith("3.")
    (record, _) = sorted(scene.ran.written("good"), key=lambda one: one.final_state)
    assert (record.final_state, record.filename) == (COMPLETE, f"{name}.csv")
    assert record.annotations == {"app": name, "team": f"of {name}"}
    assert said(scene, "in_a_thread") == [(COMPLETE, name, None)]
    assert scene.error("failed") is not None
    assert not scene.is_committed("failed")
    ((state, app, cause),) = said(scene, "failed")
    assert (state, app, f"from {name}" in (cause or "")) == (ERROR, name, True)
    _, (state, app, cause) = sorted(said(scene, "good"))
    assert (state, app, "exists" in (cause or "")) == (ERROR, name if has_tags else None, True)
    own = [one for one in scene.ran.records if (one.annotations or {}).get("app") == name]
    assert len(own) == 4
    assert all(f"{scene.ran.out}/" in (record.data_sink or "") for record in own)


@ending("Spark Connect", "a client is killed in the middle of a write")
def test_a_write_of_a_client_that_is_killed(scenes: dict[str, Scene]) -> None:
    assert scenes["killed"].is_committed("slow")
    assert said(scenes["killed"], "slow") == [(COMPLETE, "killed", None)]


@ending("Spark Connect", "the server is stopped (SIGTERM)")
def test_a_server_that_is_told_to_end(server: Server, scenes: dict[str, Scene]) -> None:
    assert server.process.returncode == 128 + signal.SIGTERM
    assert scenes["orders"].ran.application("server").final_state is CANCELLED


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"remote": "sc://localhost", "provenance_enabled": True}, "no use for provenance_enabled"),
        ({"remote": "sc://localhost", "tags": {"team": "a,b"}}, "comma"),
        ({"remote": "sc://localhost", "tags": {"a=b": "c"}}, "="),
        ({"remote": "sc://localhost", "master": "local"}, "exclude"),
        ({"remote": "local"}, "address of a server"),
    ],
)
def test_what_a_session_of_spark_connect_cannot_be_given_is_refused(
    given: dict[str, object], why: str
) -> None:
    with pytest.raises(waybill.spark.SparkSetupError, match=why):
        waybill.spark.session("refused", **given)  # type: ignore[arg-type]
