"""How writes end that run side by side, in threads and in several sessions of one application."""

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
from concurrent.futures import ThreadPoolExecutor
from pyspark.sql import functions as F

spark = waybill.spark.session("threads", **SETTINGS, **LOCAL | {"master": "local[8]"})
spark.sparkContext.setLogLevel("OFF")
spark.range(100).withColumn("k", F.col("id") % 3).write.parquet(OUT + "/source")

def write(number):
    session = spark.newSession() if number % 2 else spark
    rows = session.read.parquet(OUT + "/source")
    if number % 4 < 2:
        rows = rows.selectExpr("id", f"if(id < 0, 'x', raise_error('number {number}.')) AS x")
    attempt(f"thread_{number}", lambda: rows.write.parquet(OUT + f"/thread_{number}"))

with ThreadPoolExecutor(8) as threads:
    list(threads.map(write, range(32)))
spark.stop()
tell()
"""


@pytest.fixture(scope="module")
def scene(play: Play) -> Scene:
    return play(PROGRAM)


@ending(
    "threads and sessions",
    "32 writes in 8 threads and several sessions, half of them fail",
    really="exceptions in 16, `_SUCCESS` in 16",
    record="16 COMPLETE, 16 ERROR, each with its own cause",
)
def test_writes_side_by_side_in_threads_and_sessions(scene: Scene) -> None:
    for number in range(32):
        name = f"thread_{number}"
        fails = number % 4 < 2
        assert scene.is_committed(name) is not fails
        assert (scene.error(name) is not None) is fails
        assert scene.states(name) == [ERROR if fails else COMPLETE], name
        if fails:
            assert f"number {number}." in scene.cause(name)
