"""How writes, tables, RDDs and reads end, in one driver that goes on after each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyspark
import pytest
from endings import ending

from waybill.facets import EVIDENCE, FinalState

if TYPE_CHECKING:
    from stage import Play, Scene

COMPLETE, ERROR, CANCELLED = FinalState.COMPLETE, FinalState.ERROR, FinalState.CANCELLED
FILTERED = FinalState.FILTERED

PROGRAM = """
import threading, time
from pyspark import TaskContext
from pyspark.sql import functions as F

spark = waybill.spark.session("endings", **SETTINGS, **LOCAL | {"master": "local[2,2]"})
context = spark.sparkContext
context.setLogLevel("OFF")
fails = F.udf(lambda _: 1 / 0, "int")
slow = F.udf(lambda value: time.sleep(0.5) or value, "long")

def parquet(name, rows, mode="errorifexists"):
    attempt(name, lambda: rows().write.mode(mode).parquet(OUT + "/" + name))

def sql(name, text):
    attempt(name, lambda: spark.sql(text))

spark.range(100).withColumn("k", F.col("id") % 3).write.parquet(OUT + "/source")
rows = spark.read.parquet(OUT + "/source")
failing = rows.withColumn("x", fails("id"))
counts = rows.groupBy("k").count()
for name in ("exists", "ignored", "replaced", "emptied", "appended"):
    rows.write.parquet(OUT + "/" + name)

parquet("good", lambda: rows)
parquet("empty", lambda: rows.where("id < 0"))
parquet("no_shuffle", lambda: failing)
parquet("after_shuffle", lambda: counts.withColumn("x", fails("count")))
last_fails = F.expr("if(id < 99, 'x', raise_error('99 comes last'))")
parquet("halfway", lambda: rows.repartition(4).withColumn("x", last_fails))
parquet("exists", lambda: counts)
parquet("ignored", lambda: counts, "ignore")
parquet("replaced", lambda: counts, "overwrite")
parquet("emptied", lambda: failing, "overwrite")
parquet("appended", lambda: rows, "append")
parquet("no_column", lambda: rows.select("nothing"))
attempt("not_writable", lambda: rows.write.parquet("file:///proc/waybill/not_writable"))

parquet("unset", lambda: rows)
for name in ("sftp", "ftp"):
    spark.conf.set("spark.waybill.data_source", name)
    parquet(name, lambda: rows)
spark.conf.unset("spark.waybill.data_source")

def once_more(part):
    if TaskContext.get().attemptNumber() == 0:
        raise OSError("the first attempt")
    return part

parquet("retried", lambda: spark.createDataFrame(rows.rdd.mapPartitions(once_more), rows.schema))
threading.Timer(4, context.cancelAllJobs).start()
parquet("cancelled", lambda: rows.repartition(2).withColumn("x", slow("id")))

attempt("table", lambda: rows.write.option("path", OUT + "/table").saveAsTable("kept"))
attempt("table_exists", lambda: counts.write.saveAsTable("kept"))
attempt("table_fails", lambda: failing.write.option("path", OUT + "/table_fails").saveAsTable("lost"))
create = "CREATE TABLE {0} USING parquet LOCATION '" + OUT + "/{0}' AS SELECT {1} FROM kept"
sql("ctas", create.format("ctas", "*"))
sql("ctas_fails", create.format("ctas_fails", "if(id < 0, 'x', raise_error('no')) AS x"))
sql("inserted", "INSERT INTO ctas SELECT * FROM kept")
once = create.replace("TABLE", "TABLE IF NOT EXISTS").format("once", "*")
for name in ("new", "exists"):
    sql("ctas_" + name, once)
sql("create_exists", "CREATE TABLE IF NOT EXISTS once (id LONG) USING parquet")
for name in ("new", "exists"):
    jdbc = rows.write.mode("ignore").format("jdbc").option("url", "jdbc:derby:memory:endings;create=true")
    attempt("jdbc_" + name, lambda: jdbc.option("dbtable", "ignored_rows").save())
sql("alter", "ALTER TABLE ctas SET TBLPROPERTIES ('a' = 'b')")
sql("drop", "DROP TABLE ctas")

attempt("rdd", lambda: context.parallelize([1, 2]).saveAsTextFile(OUT + "/rdd"))
attempt("rdd_fails", lambda: rows.rdd.map(lambda _: 1 / 0).saveAsTextFile(OUT + "/rdd_fails"))
attempt("rdd_exists", lambda: context.parallelize([1]).saveAsTextFile(OUT + "/rdd"))

attempt("collect", lambda: len(spark.read.parquet(OUT + "/good").collect()))
attempt("show", lambda: spark.read.parquet(OUT + "/good").show(1))
attempt("count", lambda: spark.read.parquet(OUT + "/good").count())
attempt("collect_fails", lambda: failing.collect())
kept = spark.read.schema("id LONG, k LONG").parquet(OUT + "/good").cache()
attempt("cached", lambda: [len(kept.collect()), kept.count(), len(kept.localCheckpoint().collect())])
kept.unpersist()
attempt("cached_no_more", lambda: len(kept.collect()))

spark.stop()
tell()
"""


@pytest.fixture(scope="module")
def scene(play: Play) -> Scene:
    return play(PROGRAM)


@ending("a write", "it succeeds", really="files, `_SUCCESS`", record="COMPLETE")
def test_a_write(scene: Scene) -> None:
    assert scene.error("good") is None
    assert scene.is_committed("good")
    assert scene.states("good") == [COMPLETE]


@ending("a write", "it has no rows", really="`_SUCCESS`", record="COMPLETE")
def test_a_write_without_rows(scene: Scene) -> None:
    assert scene.error("empty") is None
    assert scene.is_committed("empty")
    assert scene.states("empty") == [COMPLETE]


@pytest.mark.parametrize("name", ["no_shuffle", "after_shuffle"])
@ending(
    "a write",
    "a task fails, before or after a shuffle",
    really="an exception, a folder without `_SUCCESS`",
    record="ERROR with the cause",
)
def test_a_write_whose_task_fails(scene: Scene, name: str) -> None:
    assert "ZeroDivisionError" in (scene.error(name) or "")
    assert not scene.is_committed(name)
    assert scene.states(name) == [ERROR]
    assert scene.cause(name) == "ZeroDivisionError: division by zero"


@ending(
    "a write",
    "one of its tasks fails after the others wrote",
    really="an exception, no file is left",
    record="ERROR with the cause",
)
def test_a_write_of_which_one_task_fails(scene: Scene) -> None:
    assert scene.error("halfway")
    assert not scene.has_rows("halfway")
    assert scene.states("halfway") == [ERROR]
    assert "99 comes last" in scene.cause("halfway")


@ending(
    "a write",
    "the folder exists",
    really="an exception, the folder is unchanged",
    record="ERROR with the cause; the earlier writer's COMPLETE stays",
)
def test_a_write_to_a_folder_that_exists(scene: Scene) -> None:
    assert "PATH_ALREADY_EXISTS" in (scene.error("exists") or "")
    assert sorted(scene.states("exists")) == [COMPLETE, ERROR]


@ending(
    "a write",
    "the folder exists, mode `ignore`",
    really="no exception, nothing is written",
    record="FILTERED",
)
def test_a_write_that_is_ignored(scene: Scene) -> None:
    assert scene.error("ignored") is None
    assert sorted(scene.states("ignored")) == [COMPLETE, FILTERED]  # COMPLETE of who wrote it


@pytest.mark.parametrize("name", ["replaced", "appended"])
@ending(
    "a write",
    "the folder exists, mode `overwrite` or `append`",
    really="files, `_SUCCESS`",
    record="COMPLETE",
)
def test_a_write_that_replaces_or_appends(scene: Scene, name: str) -> None:
    assert scene.is_committed(name)
    assert scene.states(name) == [COMPLETE, COMPLETE]


@ending(
    "a write",
    "a task fails, mode `overwrite`",
    really="an exception; the old files are gone",
    record="ERROR with the cause",
)
def test_a_write_that_fails_to_replace(scene: Scene) -> None:
    assert scene.error("emptied")
    assert not scene.has_rows("emptied")
    assert sorted(scene.states("emptied")) == [COMPLETE, ERROR]


@ending(
    "a write",
    "it names a column that does not exist",
    really="an exception before Spark starts",
    record="none",
)
def test_a_write_that_spark_does_not_begin(scene: Scene) -> None:
    assert "UNRESOLVED_COLUMN" in (scene.error("no_column") or "")
    assert scene.states("no_column") == []


@ending("a write", "its file system accepts no files", really="an exception", record="ERROR with the cause")
def test_a_write_to_where_nothing_can_be_written(scene: Scene) -> None:
    assert scene.error("not_writable")
    (record,) = [
        one for one in scene.ran.records if (one.data_sink or "").endswith("/proc/waybill/not_writable")
    ]
    assert record.final_state is ERROR


@ending(
    "a write",
    "a property `spark.waybill.<field>` is set as soon as it has returned",
    really="files, `_SUCCESS`",
    record="COMPLETE, without that value, which the next write has",
)
def test_a_write_after_which_a_property_is_set(scene: Scene) -> None:
    assert scene.record("unset").data_source.endswith(f"{scene.ran.out}/source")
    assert [scene.record(name).data_source for name in ("sftp", "ftp")] == ["sftp", "ftp"]


@ending("a write", "a task fails once and is retried", really="files, `_SUCCESS`", record="COMPLETE")
def test_a_write_whose_task_is_tried_again(scene: Scene) -> None:
    assert scene.error("retried") is None
    assert scene.is_committed("retried")
    assert scene.states("retried") == [COMPLETE]


@ending(
    "a write",
    "somebody cancels its jobs",
    really="an exception, no `_SUCCESS`",
    record="CANCELLED",
)
def test_a_write_whose_jobs_are_cancelled(scene: Scene) -> None:
    assert "cancel" in (scene.error("cancelled") or "").lower()
    assert not scene.is_committed("cancelled")
    assert scene.states("cancelled") == [CANCELLED]


@pytest.mark.parametrize("name", ["table", "ctas"])
@ending(
    "a table",
    "`saveAsTable`, or `CREATE TABLE … AS SELECT`",
    really="the table and its files",
    record="one, COMPLETE: that of its files",
)
def test_a_table_that_is_created(scene: Scene, name: str) -> None:
    assert scene.error(name) is None
    assert scene.is_committed(name)
    # An INSERT followed in the second one.
    assert scene.states(name) == [COMPLETE] * (2 if name == "ctas" else 1)


@ending(
    "a table",
    "it exists: `CREATE TABLE IF NOT EXISTS … AS SELECT`, mode `ignore` (of JDBC, Delta and Iceberg, too), a "
    "repeated transaction of Delta",
    really="no exception, the table is unchanged",
    record="FILTERED with the reason; none for `saveAsTable` of files, which starts nothing",
)
def test_a_table_that_is_not_written_because_it_exists(scene: Scene) -> None:
    for name in ("ctas_new", "ctas_exists", "create_exists", "jdbc_new", "jdbc_exists"):
        assert scene.error(name) is None
    once = [
        record
        for record in scene.ran.written("once")
        if "create_data_source_table_command" not in record.transforms[0]
    ]
    into = [record for record in scene.ran.records if (record.data_sink or "").endswith("/ignored_rows")]
    for records in (once, into):
        states = [record.final_state for record in sorted(records, key=lambda record: record.created)]
        assert states == [COMPLETE] * (len(states) - 1) + [FILTERED]
        (filtered,) = [record for record in records if record.final_state is FILTERED]
        assert filtered.annotations == {"filteredCause": "its output already exists"}
    assert len(into) == 2


@ending(
    "a table",
    "it exists",
    really="an exception, the table is unchanged",
    record="ERROR with the cause, without a sink; none on PySpark 3.5 and 4.0, which start no job",
)
def test_a_table_that_exists(scene: Scene) -> None:
    assert "ALREADY_EXISTS" in (scene.error("table_exists") or "")
    begins = not pyspark.__version__.startswith(("3.5.", "4.0."))
    causes = [
        (one.annotations or {}).get("errorCause", "") for one in scene.ran.records if one.final_state is ERROR
    ]
    assert len([cause for cause in causes if "TABLE_OR_VIEW_ALREADY_EXISTS" in cause]) == begins


@pytest.mark.parametrize("name", ["table_fails", "ctas_fails"])
@ending(
    "a table",
    "a task fails while it is created",
    really="an exception, no table",
    record="one, ERROR with the cause: that of its files",
)
def test_a_table_that_fails(scene: Scene, name: str) -> None:
    assert scene.error(name)
    assert not scene.is_committed(name)
    assert scene.states(name) == [ERROR]


@ending("a table", "`ALTER TABLE`, `DROP TABLE`", really="no data is written", record="none")
def test_a_table_that_is_altered_or_dropped(scene: Scene) -> None:
    assert scene.error("alter") is None
    assert scene.error("drop") is None
    assert not [one for one in scene.ran.records if "alter_table" in one.transforms[0]]
    assert not [one for one in scene.ran.records if "drop_table" in one.transforms[0]]


@ending("an RDD", "`saveAsTextFile` succeeds", really="files, `_SUCCESS`", record="COMPLETE")
def test_an_rdd(scene: Scene) -> None:
    assert scene.is_committed("rdd")
    assert COMPLETE in scene.states("rdd")


@ending("an RDD", "a task fails", really="an exception, no `_SUCCESS`", record="ERROR with the cause")
def test_an_rdd_whose_task_fails(scene: Scene) -> None:
    assert scene.error("rdd_fails")
    assert not scene.is_committed("rdd_fails")
    assert scene.states("rdd_fails") == [ERROR]
    assert scene.cause("rdd_fails") == "ZeroDivisionError: division by zero"


READING = """
from pathlib import Path
spark = waybill.spark.session("reading", **LOCAL, **SETTINGS)
context = spark.sparkContext
folder = Path(OUT, "in")
(folder / "sub").mkdir(parents=True)
for name in ("a", "b", "c", "sub/d"):
    (folder / f"{name}.txt").write_text(name)

def save(name, rdd):
    attempt(name, lambda: rdd.map(lambda one: (str(one),)).toDF("v STRING").write.parquet(f"{OUT}/{name}"))

save("text", context.textFile(f"{folder}/a.txt"))
save("relative", context.textFile("out/in/a.txt,out/in/b.txt"))
save("pattern", context.textFile(f"file://{folder}/[ab].txt"))
save("folder", context.textFile(f"{folder}/sub"))
save("binary", context.binaryFiles(f"{folder}/b.txt").keys())
save("whole", context.wholeTextFiles(f"{folder}/c.txt"))
save("hadoop", context.newAPIHadoopFile(
    f"{folder}/c.txt", "org.apache.hadoop.mapreduce.lib.input.TextInputFormat",
    "org.apache.hadoop.io.LongWritable", "org.apache.hadoop.io.Text",
).values())
save("union", context.textFile(f"{folder}/a.txt").union(context.textFile(f"{folder}/sub/d.txt")))
save("folder and file", context.textFile(f"{folder}/sub").union(context.textFile(f"{folder}/sub/d.txt")))
save("named", context.textFile(f"{folder}/a.txt").setName("orders: [raw"))
save("fails", context.textFile(f"{folder}/a.txt").map(lambda _: 1 / 0))
save("rows", spark.read.text(f"{folder}/a.txt").rdd)
frame = spark.read.text(f"{folder}/b.txt")
lines = context.textFile(f"{folder}/a.txt").map(lambda line: (line,)).toDF("value STRING")
attempt("frame", lambda: frame.union(lines).write.parquet(f"{OUT}/frame"))
attempt("saved", lambda: context.textFile(f"{folder}/c.txt").saveAsTextFile(f"{OUT}/saved"))
spark.stop()
tell()
"""


@pytest.fixture(scope="module")
def reading(play: Play) -> Scene:
    return play(READING)


@ending(
    "an RDD",
    "it reads files, as by `textFile`, `binaryFiles` and `wholeTextFiles`, and its rows are written",
    really="files, `_SUCCESS`; or an exception",
    record="COMPLETE or ERROR, with the files as sources; of `DataFrame.rdd` with their folder",
)
@pytest.mark.parametrize(
    ("name", "files"),
    {
        "text": {"in/a.txt"},
        "relative": {"in/a.txt", "in/b.txt"},
        "pattern": {"in/a.txt", "in/b.txt"},
        "folder": {"in/sub"},
        "binary": {"in/b.txt"},
        "whole": {"in/c.txt"},
        "hadoop": {"in/c.txt"},
        "union": {"in/a.txt", "in/sub/d.txt"},
        "folder and file": {"in/sub", "in/sub/d.txt"},
        "named": {"in/a.txt"},
        "fails": {"in/a.txt"},
        "rows": {"in"},
        "frame": {"in/a.txt", "in/b.txt"},
        "saved": {"in/c.txt"},
    }.items(),
)
def test_a_file_that_an_rdd_reads_is_a_source(reading: Scene, name: str, files: set[str]) -> None:
    assert bool(reading.error(name)) == (name == "fails")
    record = reading.record(name)
    assert record.final_state is (ERROR if name == "fails" else COMPLETE)
    events = [event for event in reading.ran.events if event.run.runId == record.did]
    inputs = {one.name for event in events for one in event.inputs or ()}
    assert inputs == {f"{reading.ran.out}/{file}" for file in files}
    assert record.data_source in {f"file:{one}" for one in inputs}


@ending(
    "an RDD",
    "the folder exists",
    really="an exception, the folder is unchanged",
    record="none: Spark starts no job, and the listener reports nothing",
)
def test_an_rdd_whose_folder_exists(scene: Scene) -> None:
    assert "FileAlreadyExistsException" in (scene.error("rdd_exists") or "")
    assert scene.states("rdd") == [COMPLETE]


@ending(
    "a read",
    "`collect`, `show`, `count`, of a cached dataset, too, whether it fails or not",
    really="nothing is written",
    record="none",
)
def test_a_read(scene: Scene) -> None:
    assert scene.ended["count"]["value"] == "100"
    assert scene.ended["cached"]["value"] == "[100, 100, 100]"
    assert scene.ended["cached_no_more"]["value"] == "100"
    assert scene.states("good") == [COMPLETE]  # of who wrote it
    assert scene.error("collect_fails")
    assert [one for one in scene.ran.records if one.data_sink is None and one.final_state is not ERROR] == [
        scene.ran.application("endings")
    ]


def test_nothing_else_is_told(scene: Scene) -> None:
    """Neither a run that never ended nor a state that no row names."""
    states = {one.final_state for one in scene.ran.records}
    assert states == {COMPLETE, ERROR, CANCELLED, FILTERED}
    marked = [one for one in scene.ran.records if EVIDENCE in (one.annotations or {})]
    assert [one.annotations for one in marked] == [{EVIDENCE: "listener only, no sign of a write"}]
    assert "create_data_source_table_command" in marked[0].transforms[0]
    assert [one for one in scene.ran.records if one.final_state is CANCELLED] == scene.ran.written(
        "cancelled"
    )
