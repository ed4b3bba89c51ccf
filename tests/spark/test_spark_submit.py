"""A plain program that spark-submit starts, with nothing but the listener and an event log set in Spark."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from logged import Store
from served import Collector, without_runner
from stage import QUICK_JVM

from waybill.facets import PRODUCER, FinalState, decode_event
from waybill.spark import fetch_listener, find_java, spark_home
from waybill.spark.event_logs import LoggedApplication, find_logs, logs_of_server
from waybill.spark.runtime import LISTENER_CLASS

if TYPE_CHECKING:
    from conftest import Ran, Run

pytestmark = pytest.mark.spark_truth

PROGRAM = """
import time
import urllib.request
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")

def attempt(write):
    try:
        write()
    except Exception:
        pass

spark.range(50).selectExpr("id", "id % 3 AS k").write.parquet(OUT + "/a")
spark.read.parquet(OUT + "/a").groupBy("k").count().write.parquet(OUT + "/b")
attempt(lambda: spark.range(9).repartition(2).selectExpr("if(id = 3, raise_error('boom'), id) x")
    .write.parquet(OUT + "/after_shuffle"))
for _ in range(300):
    metrics = urllib.request.urlopen(sys.argv[3]).read().decode()
    if is_corrected := "waybill_event_logs_corrected_total 1" in metrics:
        break
    time.sleep(0.2)
attempt(lambda: spark.range(5).write.json(OUT + "/a"))
attempt(lambda: spark.range(9).selectExpr("raise_error('boom')").collect())
spark.stop()
assert is_corrected
"""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of event logs."""
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory, logs: Path) -> Iterator[Collector]:
    """A collector that follows the event logs."""
    follows = ("--event-logs-every-s", "1", "--event-logs", f"file:{logs}")
    with without_runner(tmp_path_factory.mktemp("home"), *follows) as collector:
        yield collector


@pytest.fixture(scope="module")
def plain(run: Run, collector: Collector, logs: Path) -> Ran:
    conf = {
        "spark.master": "local[2]",
        "spark.app.name": "plain",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.driver.extraClassPath": str(fetch_listener()),
        "spark.extraListeners": LISTENER_CLASS,
        "spark.openlineage.transport.type": "http",
        "spark.openlineage.transport.url": collector.url,
        "spark.openlineage.transport.compression": "gzip",
        "spark.openlineage.namespace": "tests",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{logs}",
    }
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    ran = run(
        PROGRAM,
        command=(str(spark_home() / "bin" / "spark-submit"), *options),
        arguments=(f"{collector.url}/metrics",),
        env={"JAVA_HOME": str(find_java().home)},
        home=collector.home,
    )
    assert ran.status == 0, ran.stderr
    return ran


def test_a_plain_spark_submit_leaves_the_trail_at_the_endpoint(plain: Ran) -> None:
    (second,) = plain.written("b")
    # A failed write to the first follows, which may have been corrected by now.
    assert FinalState.COMPLETE in {record.final_state for record in plain.written("a")}
    assert second.final_state is FinalState.COMPLETE
    assert second.data_source == f"file:{plain.out}/a"
    assert plain.application("plain").final_state is FinalState.COMPLETE


def test_a_write_that_fails_after_a_shuffle_is_an_error_while_its_job_goes_on(plain: Ran) -> None:
    (record,) = plain.written("after_shuffle")
    assert record.final_state is FinalState.ERROR


def test_what_failed_is_an_error_once_the_log_was_caught_up_with(
    plain: Ran, collector: Collector, logs: Path, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    store.emit(*(body for body in collector.bodies() if is_of_the_listener(body)))
    assert store.records()[f"file:{plain.out}/after_shuffle"].final_state is FinalState.COMPLETE
    corrections = store.catch_up(logs).corrections
    assert {f"{plain.out}/{name}" for name in ("a", "after_shuffle")} <= {one.output for one in corrections}
    assert store.records()[f"file:{plain.out}/after_shuffle"].final_state is FinalState.ERROR
    assert store.catch_up(logs).corrections == ()


def is_of_the_listener(body: bytes) -> bool:
    return body.startswith(b"{") and decode_event(body).producer != PRODUCER


@pytest.fixture
def history_server(plain: Ran, logs: Path) -> Iterator[str]:  # noqa: ARG001 - what is in the folder
    """A History Server of Spark's, of the folder that the program logged to."""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    options = f"-Dspark.history.fs.logDirectory=file://{logs} -Dspark.history.ui.port={port}"
    command = [str(spark_home() / "bin" / "spark-class"), "org.apache.spark.deploy.history.HistoryServer"]
    changes = {
        "JAVA_HOME": str(find_java().home),
        "SPARK_HISTORY_OPTS": options,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with subprocess.Popen(command, env=os.environ | changes, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = next(line for line in process.stderr if "Parsed" in line or "Finished parsing" in line)
        assert said
        drained = threading.Thread(target=process.stderr.read, daemon=True)
        drained.start()
        yield f"http://127.0.0.1:{port}"
        process.terminate()
        process.wait()
        drained.join()


def test_a_real_history_server_gives_the_same_as_the_folder(
    history_server: str, logs: Path, tmp_path: Path
) -> None:
    (log,) = logs_of_server(history_server, tmp_path)
    (other,) = find_logs(logs)
    assert LoggedApplication.read(log) == LoggedApplication.read(other)
