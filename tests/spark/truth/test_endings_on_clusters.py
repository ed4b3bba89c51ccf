"""How writes end on a standalone cluster of two workers, when executors die and tasks are run twice."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from endings import ending

from waybill.facets import FinalState
from waybill.spark import find_java, spark_home

if TYPE_CHECKING:
    from stage import Play, Scene

pytestmark = [
    pytest.mark.spark_truth,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for executors in /proc"),
]

COMPLETE, ERROR = FinalState.COMPLETE, FinalState.ERROR
STARTS_WITHIN_S = 60

PROGRAM = """
import os, signal, time
from pyspark import TaskContext
from pyspark.sql import functions as F

MASTER = sys.argv[3]
more = {"spark.executor.memory": "512m", "spark.speculation": "true", "spark.speculation.multiplier": "2",
    "spark.speculation.interval": "100ms", "spark.speculation.quantile": "0.5", "spark.task.maxFailures": "2"}
spark = waybill.spark.session("cluster", **SETTINGS, master=MASTER, conf=LOCAL["conf"] | more)
context = spark.sparkContext
context.setLogLevel("OFF")

def parquet(name, rows):
    attempt(name, lambda: rows.write.parquet(OUT + "/" + name))

def executor():
    pid = os.getppid()
    while "CoarseGrainedExecutorBackend" not in open(f"/proc/{pid}/cmdline").read():
        pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
    return pid

def kills(once):
    def kill(value):
        if value == 7 and not (once and TaskContext.get().attemptNumber()):
            os.kill(executor(), signal.SIGKILL)
            time.sleep(60)
        return value
    return F.udf(kill, "long")

def straggles(value):
    if value == 7:
        attempt = TaskContext.get().attemptNumber()
        open(f"{OUT}/attempt_{attempt}", "x").close()
        if attempt == 0:
            time.sleep(60)
    return value

rows = spark.range(0, 40, 1, 8)
parquet("good", rows)
parquet("dies_once", rows.withColumn("x", kills(True)("id")))
parquet("speculated", rows.withColumn("x", F.udf(straggles, "long")("id")))
parquet("dies_always", rows.withColumn("x", kills(False)("id")))
spark.stop()
tell()
"""


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a master with two workers of two cores each."""
    folder = tmp_path_factory.mktemp("cluster")
    home = spark_home()
    env = {**os.environ, "JAVA_HOME": str(find_java().home), "SPARK_WORKER_DIR": str(folder)}
    begun: list[subprocess.Popen[bytes]] = []

    def begin(name: str, *words: str) -> Path:
        log = folder / f"{name}.log"
        command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{words[0]}", *words[1:]]
        with log.open("wb") as file:
            begun.append(subprocess.Popen(command, env=env, stdout=file, stderr=file, start_new_session=True))
        return log

    try:
        log = begin("master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        address = said(log, r"Starting Spark master at (spark://\S+)")
        # Spark runs a slow task for the second time on another host only.
        for name, host in (("one", "127.0.0.1"), ("two", "127.0.0.2")):
            words = ["--host", host, "--webui-port", "0", "--cores", "2", "--memory", "1g", address]
            said(begin(name, "worker.Worker", *words), r"(Successfully registered)")
        yield address
    finally:
        for process in begun:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def said(log: Path, pattern: str) -> str:
    """What a log says, as soon as it does."""
    deadline_s = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < deadline_s:
        if found := re.search(pattern, log.read_text()):
            return found[1]
        time.sleep(0.1)
    raise AssertionError(log.read_text()[-2000:])


@pytest.fixture(scope="module")
def scene(play: Play, master: str) -> Scene:
    return play(PROGRAM, arguments=(master,))


@ending("a cluster", "a write on two workers succeeds")
def test_a_write_on_a_cluster(scene: Scene) -> None:
    assert scene.is_committed("good")
    assert scene.states("good") == [COMPLETE]


@ending("a cluster", "an executor is killed, and its tasks run elsewhere")
def test_a_write_whose_executor_dies(scene: Scene) -> None:
    assert scene.error("dies_once") is None
    assert scene.is_committed("dies_once")
    assert scene.states("dies_once") == [COMPLETE]


@ending("a cluster", "a slow task is run twice (speculation)")
def test_a_write_with_a_speculative_task(scene: Scene) -> None:
    assert scene.error("speculated") is None
    # The first may be overtaken before it comes to the row that holds it up.
    assert (scene.ran.out / "attempt_1").exists()
    assert scene.is_committed("speculated")
    assert scene.states("speculated") == [COMPLETE]


@ending("a cluster", "a task kills its executor each time")
def test_a_write_whose_executors_die(scene: Scene) -> None:
    assert scene.error("dies_always")
    assert not scene.is_committed("dies_always")
    assert scene.states("dies_always") == [ERROR]
