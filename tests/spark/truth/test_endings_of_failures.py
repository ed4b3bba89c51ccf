"""Writes that fail somewhere else than in their own tasks: what the record says is why."""

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
from pyspark.sql import functions as F

spark = waybill.spark.session("failures", **SETTINGS, **LOCAL)
spark.sparkContext.setLogLevel("OFF")
fails = F.udf(lambda _: 1 / 0, "int")
spark.range(10).write.parquet(OUT + "/source")
rows = spark.read.parquet(OUT + "/source")
rows.createOrReplaceTempView("good")
rows.selectExpr("id", "if(id = 3, raise_error('no such region'), id) AS x").createOrReplaceTempView("bad")
rows.withColumn("x", fails("id")).createOrReplaceTempView("bad_python")

def parquet(name, text, adapts=True):
    spark.conf.set("spark.sql.adaptive.enabled", str(adapts))
    attempt(name, lambda: spark.sql(text).write.parquet(OUT + "/" + name))

for adapts in (True, False):
    kind = "adaptive" if adapts else "plain"
    parquet(f"subquery_{kind}", "SELECT id FROM good WHERE id < (SELECT max(x) FROM bad)", adapts)
    parquet(f"broadcast_{kind}", "SELECT /*+ BROADCAST(bad) */ bad.x FROM good JOIN bad USING (id)", adapts)
    parquet(f"python_{kind}", "SELECT id, (SELECT max(x) FROM bad_python) AS x FROM good", adapts)

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
spark.stop()
tell()
"""


@pytest.fixture(scope="module")
def scene(play: Play) -> Scene:
    return play(PROGRAM)


@pytest.mark.parametrize("kind", ["adaptive", "plain"])
@ending(
    "a write",
    "a subquery or a broadcast of it fails",
    really="an exception whose first lines do not say why",
    record="ERROR with the cause in the job that failed",
)
def test_a_write_of_which_another_job_fails(scene: Scene, kind: str) -> None:
    for name in (f"subquery_{kind}", f"broadcast_{kind}"):
        assert "no such region" in scene.cause(name)
        assert not scene.cause(name).startswith("Exception thrown in awaitResult")
    assert scene.cause(f"python_{kind}") == "ZeroDivisionError: division by zero"
    assert "awaitResult" in (scene.error(f"subquery_{kind}") or "")


@ending(
    "a write",
    "a file that it reads is damaged",
    really="an exception with a chain of causes",
    record="ERROR with the first and the last cause",
)
def test_a_write_whose_input_is_damaged(scene: Scene) -> None:
    assert scene.error("copied")
    assert "is not a Parquet file" in scene.cause("copied")


@ending(
    "a write",
    "to a database by JDBC: it succeeds, or a task fails",
    really="rows in the table; or an exception",
    record="COMPLETE, or one ERROR with the cause, with the table as its sink",
)
def test_a_write_to_a_database(scene: Scene) -> None:
    assert scene.error("stored") is None
    assert "no such region" in (scene.error("refused") or "")
    told = [one for one in scene.ran.records if (one.data_sink or "").endswith(("stored", "refused"))]
    assert [one.final_state for one in told] == [COMPLETE, ERROR]
    assert "no such region" in (told[1].annotations or {})["errorCause"]
    assert not [one for one in scene.ran.records if one.final_state is ERROR and one.data_sink is None]
