"""How streams end, and the batches that they are made of."""

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
from pyspark.sql import functions as F

spark = waybill.spark.session("streams", **SETTINGS, **LOCAL)
spark.sparkContext.setLogLevel("OFF")
for name in ("read_by_files", "read_by_batches", "read_by_failure"):
    spark.range(10).write.parquet(OUT + "/" + name)

def follow(source):
    return spark.readStream.schema("id long").parquet(OUT + "/" + source)

def write_stream(name, rows):
    writer = rows.writeStream.option("checkpointLocation", OUT + "/checkpoint_" + name)
    return writer.trigger(availableNow=True)

def files():
    write_stream("files", follow("read_by_files")).start(OUT + "/files", format="parquet").awaitTermination()

def batches():
    def take(batch, number):
        batch.write.parquet(OUT + f"/batch_{number}")
    write_stream("batches", follow("read_by_batches")).foreachBatch(take).start().awaitTermination()

def fails():
    def take(batch, number):
        failing = batch.selectExpr("if(id < 0, 'x', raise_error('in a batch')) AS x")
        failing.write.parquet(OUT + "/failed_batch")
    write_stream("fails", follow("read_by_failure")).foreachBatch(take).start().awaitTermination()

attempt("files", files)
attempt("batches", batches)
attempt("fails", fails)
spark.stop()
tell()
"""


@pytest.fixture(scope="module")
def scene(play: Play) -> Scene:
    return play(PROGRAM)


@ending(
    "a stream",
    "a batch is written to files",
    really="files, a commit in `_spark_metadata`",
    record="COMPLETE with its source, but without a sink: the listener does not name it",
)
def test_a_stream_to_files(scene: Scene) -> None:
    assert scene.error("files") is None
    assert scene.has_rows("files")
    assert scene.states("files") == []
    (record,) = [one for one in scene.ran.records if one.data_source.endswith("/read_by_files")]
    assert (record.final_state, record.data_sink) == (COMPLETE, None)


@ending("a stream", "`foreachBatch` writes", really="files, `_SUCCESS`", record="COMPLETE for each write")
def test_a_stream_whose_batches_are_written(scene: Scene) -> None:
    assert scene.error("batches") is None
    assert scene.is_committed("batch_0")
    assert scene.states("batch_0") == [COMPLETE]


@ending(
    "a stream",
    "a write in `foreachBatch` fails",
    really="the stream ends with an exception",
    record="ERROR for that write, with the cause",
)
def test_a_stream_of_which_a_batch_fails(scene: Scene) -> None:
    assert scene.error("fails")
    assert not scene.is_committed("failed_batch")
    assert scene.states("failed_batch") == [ERROR]
    assert "in a batch" in scene.cause("failed_batch")
