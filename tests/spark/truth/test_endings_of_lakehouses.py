"""What the records say of real Delta and Iceberg tables, however the job was started and however it went."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyspark
import pytest
from endings import Ending, ending, endings
from stage import BEHIND, QUICK_JVM

from waybill.facets import EVIDENCE
from waybill.facets.spark_writes import LISTENER_ONLY
from waybill.spark import find_java

if TYPE_CHECKING:
    from conftest import Ran, Run

STATEMENT_TIMEOUT_S: Final = 60
"""How long a statement takes at most on a machine that is busy with others; the whole job has many."""

pytestmark = [pytest.mark.spark_truth, pytest.mark.timeout(3600)]

SPARK: Final = ".".join(pyspark.__version__.split(".")[:2])


PACKAGES: Final = {
    "3.5": (
        "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.9.2",
        "io.delta:delta-spark_2.12:3.3.2",
        "io.delta:delta-storage:3.3.2",
    ),
    "4.0": (
        "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0",
        "io.delta:delta-spark_2.13:4.0.0",
        "io.delta:delta-storage:4.0.0",
    ),
}
"""The packages of both formats for each version of Spark."""

OPTIONS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
    "spark.sql.catalog.lake.warehouse": "{out}/lake",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.warehouse.dir": "{out}/lake",
    "spark.driver.extraJavaOptions": f"{QUICK_JVM} -Dderby.system.home={{out}}",
}

PROGRAM = """
import json, os, time
from pyspark.sql import SparkSession
asked = json.loads(sys.argv[3])
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").appName("lake")
builder = builder.config("spark.sql.shuffle.partitions", "2")
for name, value in asked["options"].items():
    builder = builder.config(name, value.replace("{out}", OUT))
spark = waybill.spark.configure(builder, **SETTINGS).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
spark.range(10).selectExpr("id", "'s' AS v").createOrReplaceTempView("good")
spark.range(10).selectExpr("id", "if(id = 3, raise_error('boom'), 's') AS v").createOrReplaceTempView("bad")
spark.range(30).selectExpr("id % 3 AS k").groupBy("k").count().createOrReplaceTempView("sums")
began, failed = {}, []
for statement in asked["statements"]:
    if asked["falls_behind"] == statement:
        FALLS_BEHIND.set()
    if asked["killed_after"] == statement:
        receiver = spark.sparkContext.waybill._receiver
        receiver._keep = lambda body, keep=receiver._keep: None if b'"COMPLETE"' in body else keep(body)
    began[statement] = time.time_ns() // 1_000_000
    try:
        if statement.startswith(("append ", "ignore ", "overwrite ")):
            mode, form, view, table = statement.split()
            spark.table(view).write.format(form).mode(mode).saveAsTable(table)
        elif statement.startswith("save "):
            _, form, view, folder, mode, *transaction = statement.split()
            write = spark.table(view).write.format(form).mode(mode)
            if transaction:
                write = write.option("txnAppId", "tests").option("txnVersion", transaction[0])
            write.save(OUT + "/lake/" + folder)
        else:
            spark.sql(statement.replace("{out}", OUT))
    except Exception:
        failed.append(statement)
    time.sleep(0.01)  # what ends at the same millisecond may be told of either
if asked["killed_after"] is None:
    spark.stop()
print(json.dumps([began, failed]), flush=True)
if asked["killed_after"] is not None:
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(60000)
    os.kill(os.getpid(), 9)
"""


def packages() -> str:
    """Both formats' packages, as `spark.jars.packages` names them; without them the test is skipped."""
    if SPARK not in PACKAGES:
        pytest.skip(f"there are none for PySpark {SPARK}; make test-spark-truth has others")
    return ",".join(PACKAGES[SPARK])


class Operation(NamedTuple):
    """An operation, and what the records of it say: final state and sink, the part below the lake."""

    name: str
    statement: str
    fails: bool
    said: list[tuple[str, str | None]]


def operations(form: str) -> list[Operation]:
    """The operations of a form: a line each has its name, its statement, and the records that tell of it.

    In a session with Delta's extension the listener says nothing of a write of files whose plan is adaptive;
    of a CTAS of Delta's that failed it names no output, and there is no table whose folder is known.
    """
    whole = Path(__file__).with_name("lakehouses.txt").read_text(encoding="utf-8")
    found = []
    for line in whole.partition(f"#### {form}\n")[2].partition("#### ")[0].splitlines():
        name, statement, told = line.split(" | ")
        said = [tuple(one.split(" ")) for one in told.split(", ") if one != "none"]
        records = [(state, None if sink == "nowhere" else sink) for state, sink in said]
        # In Spark 3, an INSERT into two tables is several executions.
        if name != "INSERT into two, failing" or not SPARK.startswith("3."):
            found.append(Operation(name, statement, any(state == "ERROR" for state, _ in records), records))
    return found


ICEBERG_OPERATIONS: Final = operations("iceberg")
OPERATIONS: Final = {"iceberg": ICEBERG_OPERATIONS, "delta": operations("delta")}
ALL_OPERATIONS: Final = {**OPERATIONS, "files": operations("files")}


class Told(NamedTuple):
    """A job that ended, and when each of its statements began."""

    began_ms: Mapping[str, int]
    ran: Ran


def ask(
    run: Run,
    operations: list[Operation],
    *,
    falls_behind: Operation | None = None,
    killed_after: Operation | None = None,
) -> Told:
    """Run a job with these operations on tables of both formats; each fails or succeeds as it is meant to."""
    asked = {
        "options": {**OPTIONS, "spark.jars.packages": packages()},
        "statements": [operation.statement for operation in operations],
        "falls_behind": falls_behind and falls_behind.statement,
        "killed_after": killed_after and killed_after.statement,
    }
    ran = run(
        BEHIND * bool(falls_behind) + PROGRAM,
        arguments=(json.dumps(asked),),
        env={"JAVA_HOME": str(find_java().home)},
        timeout_s=STATEMENT_TIMEOUT_S * (len(operations) + 5),
    )
    assert ran.status == (-9 if killed_after else 0), ran.stderr
    began_ms, failed = json.loads(ran.stdout.splitlines()[-1])
    assert failed == [operation.statement for operation in operations if operation.fails]
    return Told(began_ms, ran)


def says(told: Told, operation: Operation) -> list[tuple[str, str | None]]:
    """What the records that began with the operation say, sorted, each as often as they say it."""
    began_ms = told.began_ms[operation.statement]
    ended_ms = min((ms for ms in told.began_ms.values() if ms > began_ms), default=sys.maxsize)
    lake = f"{told.ran.out}/lake/"
    found = [
        (record.final_state.value, record.data_sink.partition(lake)[2] if record.data_sink else None)
        for record in told.ran.records
        if began_ms <= record.created < ended_ms
    ]
    return sorted(found, key=str)


@pytest.fixture(scope="module")
def told_of(run: Run) -> Callable[[str], Told]:
    """What was told of all operations of one form, in a session with the extensions of both formats."""
    return functools.cache(lambda form: ask(run, ALL_OPERATIONS[form]))


@endings(
    [
        Ending(
            "a table",
            "of files, in a session with the extensions of Delta and Iceberg, with an adaptive plan",
        ),
        Ending(
            "a table",
            "of Iceberg: create, append, overwrite, `AS SELECT`, MERGE, UPDATE, DELETE, TRUNCATE; each "
            "failing, too",
        ),
        Ending("a table", "of Delta: the same, RESTORE, CLONE and OPTIMIZE"),
    ]
)
@pytest.mark.parametrize(
    ("form", "operation"),
    [
        pytest.param(form, operation, id=f"{form} {operation.name}")
        for form, operations in ALL_OPERATIONS.items()
        for operation in operations
    ],
)
def test_a_statement_has_one_record_for_each_table_that_it_writes(
    told_of: Callable[[str], Told], form: str, operation: Operation
) -> None:
    assert says(told_of(form), operation) == operation.said


@ending(
    "a table",
    "of Iceberg: a write goes to a branch, by its name or `spark.wap.branch`, or is staged by `spark.wap.id`",
)
def test_a_branch_is_another_dataset_than_its_table(told_of: Callable[[str], Told]) -> None:
    states = {output.name for event in told_of("iceberg").ran.events for output in event.outputs or ()}
    assert {Path(name).name for name in states} > {"w", "w.branch_audit", "w.wap_7", "t", "t.branch_b"}


@ending("a table", "of Iceberg: its metadata is read, as `t.snapshots`, or a branch of it")
@pytest.mark.parametrize(
    ("operation", "inputs"),
    [
        ("read a branch", {"t.branch_b": "id"}),
        ("read a metadata table", {"t.snapshots": "operation"}),
        ("read both", {"t": "id", "t.files": "file_path"}),
    ],
)
def test_a_part_of_a_table_has_columns_of_its_own(
    told_of: Callable[[str], Told], operation: str, inputs: dict[str, str]
) -> None:
    told = told_of("iceberg")
    (statement,) = [one.statement for one in ICEBERG_OPERATIONS if one.name == operation]
    record = min(
        (one for one in told.ran.records if one.created >= told.began_ms[statement]),
        key=lambda one: one.created,
    )
    event = next(one for one in told.ran.events if one.run.runId == record.did and one.outputs)
    assert {Path(one.name).name for one in event.inputs or ()} == set(inputs)
    lineage = json.loads(bytes((event.outputs or [])[0].facets))["columnLineage"]["fields"]
    origins = [origin for field in lineage.values() for origin in field["inputFields"]]
    assert {(Path(one["name"]).name, one["field"]) for one in origins} >= set(inputs.items())


@ending("a table", "of Iceberg: a MERGE fails, and `stop()` follows while the listener is behind")
def test_a_merge_that_fails_just_before_the_application_stops(run: Run) -> None:
    names = {"create", "append", "MERGE, failing"}
    operations = [operation for operation in ICEBERG_OPERATIONS if operation.name in names]
    told = ask(run, operations, falls_behind=operations[-1])
    for operation in operations:
        assert says(told, operation) == operation.said
    marks = [str(one.annotations) for one in told.ran.records]
    assert not [mark for mark in marks if "not known" in mark or LISTENER_ONLY in mark]


@ending(
    "a table",
    "of Delta or Iceberg: `kill -9` right after an append returned, before the listener reported that",
)
@pytest.mark.parametrize("form", OPERATIONS)
def test_an_append_after_which_the_driver_is_killed(run: Run, form: str) -> None:
    create, append = (one for one in OPERATIONS[form] if one.name in {"create", "append"})
    told = ask(run, [create, append], killed_after=append)
    assert says(told, append) == []
    told.ran.infer_ends()
    assert says(told, append) == append.said
    evidence = [(one.annotations or {}).get(EVIDENCE, "") for one in told.ran.records]
    assert len([one for one in evidence if one.endswith("of its output is newer than its start")]) == 1


@ending("a table", "`CREATE TABLE IF NOT EXISTS`, without `AS SELECT`")
@pytest.mark.parametrize("form", OPERATIONS)
def test_only_what_may_have_created_nothing_is_marked(told_of: Callable[[str], Told], form: str) -> None:
    told = told_of(form)
    began_ms = {one.name: told.began_ms[one.statement] for one in OPERATIONS[form]}
    ended_ms = min(ms for ms in told.began_ms.values() if ms > began_ms["create, exists"])
    (record,) = [one for one in told.ran.records if began_ms["create, exists"] <= one.created < ended_ms]
    assert record.annotations == {EVIDENCE: "listener only, no sign of a write"}
