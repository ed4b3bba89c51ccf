"""How writes, tables, RDDs and reads end, in one driver that goes on after each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyspark
import pytest
from endings import Ending, ending, endings

from waybill.facets import EVIDENCE, FinalState

if TYPE_CHECKING:
    from stage import Play, Scene

COMPLETE, ERROR, CANCELLED = FinalState.COMPLETE, FinalState.ERROR, FinalState.CANCELLED
FILTERED = FinalState.FILTERED
pytestmark = pytest.mark.spark_truth

PROGRAM = """
import threading, time
from pathlib import Path
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


class Ended(NamedTuple):
    """What a write left, and what its records say.

    Attributes:
        states: those of its records, sorted.
        error: a part of the exception that was raised, in small or capital letters; None: none was.
        is_committed: whether Spark finished a write there, although this one failed.
        has_rows: whether files with data are there; None: either.
        cause: a part of the cause in its record.
    """

    states: list[FinalState]
    error: str | None = None
    is_committed: bool = False
    has_rows: bool | None = None
    cause: str = ""


@pytest.fixture(scope="module")
def scene(play: Play) -> Scene:
    return play(PROGRAM)


ZERO = "ZeroDivisionError: division by zero"
ENDED: dict[Ending, dict[str, Ended]] = {
    Ending("a write", "it succeeds"): {"good": Ended([COMPLETE])},
    Ending("a write", "it has no rows"): {"empty": Ended([COMPLETE])},
    Ending("a write", "a task fails, before or after a shuffle"): dict.fromkeys(
        ("no_shuffle", "after_shuffle"), Ended([ERROR], "ZeroDivisionError", cause=ZERO)
    ),
    Ending("a write", "one of its tasks fails after the others wrote"): {
        "halfway": Ended([ERROR], "99 comes last", has_rows=False, cause="99 comes last")
    },
    Ending("a write", "the folder exists"): {
        "exists": Ended([COMPLETE, ERROR], "PATH_ALREADY_EXISTS", is_committed=True)
    },
    # COMPLETE of who wrote it.
    Ending("a write", "the folder exists, mode `ignore`"): {"ignored": Ended([COMPLETE, FILTERED])},
    Ending("a write", "the folder exists, mode `overwrite` or `append`"): dict.fromkeys(
        ("replaced", "appended"), Ended([COMPLETE, COMPLETE])
    ),
    Ending("a write", "a task fails, mode `overwrite`"): {
        "emptied": Ended([COMPLETE, ERROR], "ZeroDivisionError", has_rows=False)
    },
    Ending("a write", "it names a column that does not exist"): {"no_column": Ended([], "UNRESOLVED_COLUMN")},
    Ending("a write", "a task fails once and is retried"): {"retried": Ended([COMPLETE])},
    Ending("a write", "somebody cancels its jobs"): {"cancelled": Ended([CANCELLED], "cancel")},
    # An INSERT followed in the second one.
    Ending("a table", "`saveAsTable`, or `CREATE TABLE … AS SELECT`"): {
        "table": Ended([COMPLETE]),
        "ctas": Ended([COMPLETE, COMPLETE]),
    },
    Ending("a table", "a task fails while it is created"): {
        "table_fails": Ended([ERROR], "", cause=ZERO),
        "ctas_fails": Ended([ERROR], "", cause="no"),
    },
    Ending("an RDD", "a task fails"): {"rdd_fails": Ended([ERROR], "", cause=ZERO)},
}


@pytest.mark.parametrize(
    ("name", "expected"), [(name, one) for ways in ENDED.values() for name, one in ways.items()]
)
@endings(ENDED)
def test_what_is_written_ends_as_its_row_says(scene: Scene, name: str, expected: Ended) -> None:
    error = scene.error(name)
    assert (error is None) == (expected.error is None)
    assert (expected.error or "").lower() in (error or "").lower()
    assert scene.is_committed(name) == (expected.error is None or expected.is_committed)
    assert scene.has_rows(name) or expected.has_rows is not True
    assert not scene.has_rows(name) or expected.has_rows is not False
    assert sorted(scene.states(name)) == expected.states
    if expected.cause:
        assert expected.cause in scene.cause(name)


@ending("a write", "its file system accepts no files")
def test_a_write_to_where_nothing_can_be_written(scene: Scene) -> None:
    assert scene.error("not_writable")
    (record,) = [
        one for one in scene.ran.records if (one.data_sink or "").endswith("/proc/waybill/not_writable")
    ]
    assert record.final_state is ERROR


@ending("a write", "a property `spark.waybill.<field>` is set as soon as it has returned")
def test_a_write_after_which_a_property_is_set(scene: Scene) -> None:
    assert scene.record("unset").data_source.endswith(f"{scene.ran.out}/source")
    assert [scene.record(name).data_source for name in ("sftp", "ftp")] == ["sftp", "ftp"]


@ending(
    "a table",
    "it exists: `CREATE TABLE IF NOT EXISTS … AS SELECT`, mode `ignore` (of JDBC, Delta and Iceberg, too), a "
    "repeated transaction of Delta",
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


@ending("a table", "it exists")
def test_a_table_that_exists(scene: Scene) -> None:
    assert "ALREADY_EXISTS" in (scene.error("table_exists") or "")
    begins = not pyspark.__version__.startswith(("3.5.", "4.0."))
    causes = [
        (one.annotations or {}).get("errorCause", "") for one in scene.ran.records if one.final_state is ERROR
    ]
    assert len([cause for cause in causes if "TABLE_OR_VIEW_ALREADY_EXISTS" in cause]) == begins


@ending("a table", "`ALTER TABLE`, `DROP TABLE`")
def test_a_table_that_is_altered_or_dropped(scene: Scene) -> None:
    assert scene.error("alter") is None
    assert scene.error("drop") is None
    assert not [one for one in scene.ran.records if "alter_table" in one.transforms[0]]
    assert not [one for one in scene.ran.records if "drop_table" in one.transforms[0]]


@ending("an RDD", "`saveAsTextFile` succeeds")
def test_an_rdd(scene: Scene) -> None:
    assert scene.is_committed("rdd")
    assert COMPLETE in scene.states("rdd")


@ending(
    "an RDD", "it reads files, as by `textFile`, `binaryFiles` and `wholeTextFiles`, and its rows are written"
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
def test_a_file_that_an_rdd_reads_is_a_source(scene: Scene, name: str, files: set[str]) -> None:
    assert bool(scene.error(name)) == (name == "fails")
    record = scene.record(name)
    assert record.final_state is (ERROR if name == "fails" else COMPLETE)
    events = [event for event in scene.ran.events if event.run.runId == record.did]
    inputs = {one.name for event in events for one in event.inputs or ()}
    assert inputs == {f"{scene.ran.out}/{file}" for file in files}
    assert record.data_source in {f"file:{one}" for one in inputs}


@ending("an RDD", "the folder exists")
def test_an_rdd_whose_folder_exists(scene: Scene) -> None:
    assert "FileAlreadyExistsException" in (scene.error("rdd_exists") or "")
    assert scene.states("rdd") == [COMPLETE]


@ending("a read", "`collect`, `show`, `count`, of a cached dataset, too, whether it fails or not")
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
