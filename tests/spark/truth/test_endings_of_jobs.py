"""How jobs end in one driver that goes on after each: in threads, where another job fails, and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from endings import ending

from waybill.facets import FinalState

if TYPE_CHECKING:
    from stage import Play, Scene

pytestmark = pytest.mark.spark_truth

COMPLETE, ERROR = FinalState.COMPLETE, FinalState.ERROR

PROGRAM = """
import os
from concurrent.futures import ThreadPoolExecutor
from pyspark.sql import functions as F

spark = waybill.spark.session("jobs", **SETTINGS, **LOCAL | {"master": "local[8]"})
spark.sparkContext.setLogLevel("OFF")
fails = F.udf(lambda _: 1 / 0, "int")
spark.range(10).write.parquet(OUT + "/source")

def write(number):
    session = spark.newSession() if number % 2 else spark
    rows = session.read.parquet(OUT + "/source")
    if number % 4 < 2:
        rows = rows.selectExpr("id", f"if(id < 0, 'x', raise_error('number {number}.')) AS x")
    attempt(f"thread_{number}", lambda: rows.write.parquet(OUT + f"/thread_{number}"))

with ThreadPoolExecutor(8) as threads:
    list(threads.map(write, range(32)))

rows = spark.read.parquet(OUT + "/source")
rows.createOrReplaceTempView("good")
rows.selectExpr("id", "if(id = 3, raise_error('no such region'), id) AS x").createOrReplaceTempView("bad")
rows.withColumn("x", fails("id")).createOrReplaceTempView("bad_python")

def parquet(name, text):
    attempt(name, lambda: spark.sql(text).write.parquet(OUT + "/" + name))

for adapts in (True, False):
    kind = "adaptive" if adapts else "plain"
    spark.conf.set("spark.sql.adaptive.enabled", str(adapts))
    parquet(f"subquery_{kind}", "SELECT id FROM good WHERE id < (SELECT max(x) FROM bad)")
    parquet(f"broadcast_{kind}", "SELECT /*+ BROADCAST(bad) */ bad.x FROM good JOIN bad USING (id)")
    parquet(f"python_{kind}", "SELECT id, (SELECT max(x) FROM bad_python) AS x FROM good")

def corrupt():
    rows.write.parquet(OUT + "/corrupt")
    reader = spark.read.parquet(OUT + "/corrupt")
    for name in os.listdir(OUT + "/corrupt"):
        path = OUT + "/corrupt/" + name
        os.unlink(path) if name.endswith(".crc") else open(path, "wb").write(b"this is no Parquet file")
    reader.write.parquet(OUT + "/copied")

attempt("copied", corrupt)

def jdbc(view, table):
    writer = spark.table(view).write.format("jdbc").option("driver", "org.apache.derby.jdbc.EmbeddedDriver")
    writer.option("url", f"jdbc:derby:{OUT}/db;create=true").option("dbtable", table).save()

attempt("stored", lambda: jdbc("good", "stored"))
attempt("refused", lambda: jdbc("bad", "refused"))

def stream(name, begin):
    rows.write.parquet(OUT + "/read_by_" + name)
    followed = spark.readStream.schema("id long").parquet(OUT + "/read_by_" + name)
    writer = followed.writeStream.option("checkpointLocation", OUT + "/checkpoint_" + name)
    attempt(name, lambda: begin(writer.trigger(availableNow=True)).awaitTermination())

def fail(batch, number):
    failing = batch.selectExpr("if(id < 0, 'x', raise_error('in a batch')) AS x")
    failing.write.parquet(OUT + "/failed_batch")

stream("files", lambda writer: writer.start(OUT + "/files", format="parquet"))
stream("batches", lambda writer: writer.foreachBatch(
    lambda batch, number: batch.write.parquet(OUT + f"/batch_{number}")).start())
stream("fails", lambda writer: writer.foreachBatch(fail).start())

tell()
raise LookupError("no dashboard")
"""


@pytest.fixture(scope="module")
def scene(play: Play) -> Scene:
    return play(PROGRAM, status=1)


@ending("threads and sessions", "32 writes in 8 threads and several sessions, half of them fail")
def test_writes_side_by_side_in_threads_and_sessions(scene: Scene) -> None:
    for number in range(32):
        name = f"thread_{number}"
        fails = number % 4 < 2
        assert scene.is_committed(name) is not fails
        assert (scene.error(name) is not None) is fails
        assert scene.states(name) == [ERROR if fails else COMPLETE], name
        if fails:
            assert f"number {number}." in scene.cause(name)


@pytest.mark.parametrize("kind", ["adaptive", "plain"])
@ending("a write", "a subquery or a broadcast of it fails")
def test_a_write_of_which_another_job_fails(scene: Scene, kind: str) -> None:
    for name in (f"subquery_{kind}", f"broadcast_{kind}"):
        assert "no such region" in scene.cause(name)
        assert not scene.cause(name).startswith("Exception thrown in awaitResult")
    assert scene.cause(f"python_{kind}") == "ZeroDivisionError: division by zero"
    assert "awaitResult" in (scene.error(f"subquery_{kind}") or "")


@ending("a write", "a file that it reads is damaged")
def test_a_write_whose_input_is_damaged(scene: Scene) -> None:
    assert scene.error("copied")
    assert "is not a Parquet file" in scene.cause("copied")


@ending("a write", "to a database by JDBC: it succeeds, or a task fails")
def test_a_write_to_a_database(scene: Scene) -> None:
    assert scene.error("stored") is None
    assert "no such region" in (scene.error("refused") or "")
    told = [one for one in scene.ran.records if (one.data_sink or "").endswith(("stored", "refused"))]
    assert [one.final_state for one in told] == [COMPLETE, ERROR]
    assert "no such region" in (told[1].annotations or {})["errorCause"]
    without_sink = [one for one in scene.ran.records if one.data_sink is None]
    assert not [one for one in without_sink if "no such region" in str(one.annotations)]


@ending("a stream", "a batch is written to files")
def test_a_stream_to_files(scene: Scene) -> None:
    assert scene.error("files") is None
    assert scene.has_rows("files")
    assert scene.states("files") == []
    (record,) = [one for one in scene.ran.records if one.data_source.endswith("/read_by_files")]
    assert (record.final_state, record.data_sink) == (COMPLETE, None)


@ending("a stream", "`foreachBatch` writes")
def test_a_stream_whose_batches_are_written(scene: Scene) -> None:
    assert scene.error("batches") is None
    assert scene.is_committed("batch_0")
    assert scene.states("batch_0") == [COMPLETE]


@ending("a stream", "a write in `foreachBatch` fails")
def test_a_stream_of_which_a_batch_fails(scene: Scene) -> None:
    assert scene.error("fails")
    assert not scene.is_committed("failed_batch")
    assert scene.states("failed_batch") == [ERROR]
    assert "in a batch" in scene.cause("failed_batch")


@ending("a driver", "an uncaught exception")
def test_a_driver_that_raises(scene: Scene) -> None:
    record = scene.ran.application("jobs")
    assert (record.final_state, record.annotations) == (ERROR, {"errorCause": "LookupError: no dashboard"})
    assert scene.states("source") == [COMPLETE]
