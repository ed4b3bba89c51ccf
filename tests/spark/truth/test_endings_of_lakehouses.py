"""What the records say of real Delta and Iceberg tables, however the job was started and however it went."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

import pyspark
import pytest
from endings import ending

from waybill.spark import find_java, spark_home

if TYPE_CHECKING:
    from conftest import Ran, Run

pytestmark = pytest.mark.spark_truth

MAVEN: Final = Path.home() / ".m2" / "repository"
SPARK: Final = ".".join(pyspark.__version__.split(".")[:2])


class Format(NamedTuple):
    """A table format: its packages for each version of Spark, the first of which is the one to name."""

    packages: Mapping[str, tuple[str, ...]]
    options: Mapping[str, str]


ICEBERG = Format(
    {
        "3.5": ("org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.9.2",),
        "4.0": ("org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0",),
    },
    {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": "{out}/lake",
    },
)
DELTA = Format(
    {
        "3.5": ("io.delta:delta-spark_2.12:3.3.2", "io.delta:delta-storage:3.3.2"),
        "4.0": ("io.delta:delta-spark_2.13:4.0.0", "io.delta:delta-storage:4.0.0"),
    },
    {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.warehouse.dir": "{out}/lake",
        "spark.driver.extraJavaOptions": "-Dderby.system.home={out}",
    },
)

PROGRAM = """
import json, time
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
began, failed = {}, []
for operation, statement in asked["operations"]:
    began[operation] = time.time_ns() // 1_000_000
    try:
        if statement.startswith("append "):
            _, view, table = statement.split()
            spark.table(view).write.format(asked["format"]).mode("append").saveAsTable(table)
        elif statement.startswith("save "):
            _, view, folder = statement.split()
            spark.table(view).write.format(asked["format"]).mode("append").save(OUT + "/lake/" + folder)
        else:
            spark.sql(statement)
    except Exception as error:
        failed.append(operation)
spark.stop()
print(json.dumps([began, failed]))
"""


def jars(form: Format) -> list[Path]:
    """The format's JARs on this machine; without them the test is skipped."""
    if SPARK not in form.packages:
        pytest.skip(f"there is none for PySpark {SPARK}; make test-spark-truth has others")
    paths = []
    for package in form.packages[SPARK]:
        group, artifact, version = package.split(":")
        paths.append(MAVEN.joinpath(*group.split("."), artifact, version, f"{artifact}-{version}.jar"))
        if not paths[-1].exists():
            pytest.skip(f"{paths[-1]} is missing; get it with: mvn dependency:get -Dartifact={package}")
    return paths


class Operation(NamedTuple):
    """An operation, and what the records of it say: final state and sink, the part below the lake."""

    name: str
    statement: str
    fails: bool
    says: frozenset[tuple[str, str | None]]


def good(name: str, statement: str, *sinks: str | None) -> Operation:
    return Operation(name, statement, fails=False, says=frozenset(("COMPLETE", sink) for sink in sinks))


def bad(name: str, statement: str, *sinks: str | None) -> Operation:
    return Operation(name, statement, fails=True, says=frozenset(("ERROR", sink) for sink in sinks))


UPDATE = "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"

ICEBERG_OPERATIONS = [
    good("create", "CREATE TABLE lake.db.t (id BIGINT, v STRING) USING iceberg", "db/t"),
    good("append", "append good lake.db.t", "db/t"),
    bad("append, failing", "append bad lake.db.t", "db/t"),
    good("CTAS", "CREATE TABLE lake.db.c USING iceberg AS SELECT * FROM good", "db/c"),
    bad("CTAS, failing", "CREATE TABLE lake.db.d USING iceberg AS SELECT * FROM bad", "db/d"),
    good("overwrite", "INSERT OVERWRITE lake.db.t SELECT * FROM good", "db/t"),
    bad("overwrite, failing", "INSERT OVERWRITE lake.db.t SELECT * FROM bad", "db/t"),
    good("MERGE", f"MERGE INTO lake.db.t t USING good s ON t.id = s.id {UPDATE}", "db/t"),
    bad("MERGE, failing", f"MERGE INTO lake.db.t t USING bad s ON t.id = s.id {UPDATE}", "db/t"),
    good("UPDATE", "UPDATE lake.db.t SET v = 'u' WHERE id < 5", "db/t"),
    bad(
        "UPDATE, failing",
        "UPDATE lake.db.t SET v = if(id = 3, raise_error('boom'), 's') WHERE id < 5",
        "db/t",
    ),
    good("DELETE", "DELETE FROM lake.db.t WHERE id % 4 = 3", "db/t"),
    bad("DELETE, failing", "DELETE FROM lake.db.t WHERE raise_error('boom') IS NULL AND id < 4", "db/t"),
]

# The listener names no output of an UPDATE or DELETE of Delta's, nor of a CTAS that failed.
DELTA_OPERATIONS = [
    good("create", "CREATE TABLE t (id BIGINT, v STRING) USING delta", "t"),
    good("append", "append good t", "t"),
    bad("append, failing", "append bad t", "t"),
    good("save", "save good p", "p"),
    bad("save, failing", "save bad p", "p"),
    good("CTAS", "CREATE TABLE c USING delta AS SELECT * FROM good", "c"),
    bad("CTAS, failing", "CREATE TABLE d USING delta AS SELECT * FROM bad", None),
    good("overwrite", "INSERT OVERWRITE t SELECT * FROM good", "t"),
    bad("overwrite, failing", "INSERT OVERWRITE t SELECT * FROM bad", "t"),
    good("MERGE", f"MERGE INTO t USING good s ON t.id = s.id {UPDATE}", "t"),
    bad("MERGE, failing", f"MERGE INTO t USING bad s ON t.id = s.id {UPDATE}", "t"),
    good("UPDATE", "UPDATE t SET v = 'u' WHERE id < 5", None),
    bad("UPDATE, failing", "UPDATE t SET v = if(id = 3, raise_error('boom'), 's') WHERE id < 5", None),
    good("DELETE", "DELETE FROM t WHERE id = 9", None),
    bad("DELETE, failing", "DELETE FROM t WHERE raise_error('boom') IS NULL AND id < 4", None),
]


class Told(NamedTuple):
    """A job that ended, and when each of its operations began."""

    began_ms: Mapping[str, int]
    ran: Ran


def ask(
    run: Run,
    form: str,
    operations: list[Operation],
    options: Mapping[str, str],
    *,
    command: tuple[str, ...] = (sys.executable,),
    env: Mapping[str, str] = MappingProxyType({}),
) -> Told:
    """Run a job with these operations; each fails or succeeds as it is meant to."""
    asked = {
        "format": form,
        "options": options,
        "operations": [(operation.name, operation.statement) for operation in operations],
    }
    env = {"JAVA_HOME": str(find_java().home), **env}
    ran = run(PROGRAM, command=command, arguments=(json.dumps(asked),), env=env)
    assert ran.status == 0, ran.stderr
    began, failed = json.loads(ran.stdout.splitlines()[-1])
    assert failed == [operation.name for operation in operations if operation.fails]
    return Told(began, ran)


def says(told: Told, operation: Operation) -> set[tuple[str, str | None]]:
    """What the records that began with the operation say."""
    began_ms = told.began_ms[operation.name]
    ended_ms = min((ms for ms in told.began_ms.values() if ms > began_ms), default=sys.maxsize)
    lake = f"{told.ran.out}/lake/"
    return {
        (record.final_state.value, record.data_sink.partition(lake)[2] if record.data_sink else None)
        for record in told.ran.records
        if began_ms <= record.created < ended_ms
    }


FORMATS: Final = {"iceberg": (ICEBERG, ICEBERG_OPERATIONS), "delta": (DELTA, DELTA_OPERATIONS)}


def packages(form: Format) -> dict[str, str]:
    """The option that names the format's packages, which are on this machine."""
    return {"spark.jars.packages": form.packages[SPARK][0]} if jars(form) else {}


@pytest.fixture(scope="module")
def iceberg(run: Run) -> Told:
    return ask(run, "iceberg", ICEBERG_OPERATIONS, {**packages(ICEBERG), **ICEBERG.options})


@pytest.fixture(scope="module")
def delta(run: Run) -> Told:
    return ask(run, "delta", DELTA_OPERATIONS, {**packages(DELTA), **DELTA.options})


@ending(
    "a table",
    "of Iceberg: create, append, overwrite, `AS SELECT`, MERGE, UPDATE, DELETE; each failing, too",
    really="a snapshot; or an exception, and none",
    record="COMPLETE, or ERROR with the cause, with the table as its sink",
)
@pytest.mark.parametrize("operation", ICEBERG_OPERATIONS, ids=lambda operation: operation.name)
def test_an_operation_on_an_iceberg_table_is_told_as_it_went(iceberg: Told, operation: Operation) -> None:
    assert says(iceberg, operation) == operation.says


@ending(
    "a table",
    "of Delta: the same",
    really="a commit; or an exception, and none",
    record="the same, but UPDATE, DELETE and a failed `AS SELECT` have no sink: the listener names none",
)
@pytest.mark.parametrize("operation", DELTA_OPERATIONS, ids=lambda operation: operation.name)
def test_an_operation_on_a_delta_table_is_told_as_it_went(delta: Told, operation: Operation) -> None:
    assert says(delta, operation) == operation.says


WAYS: Final = [
    "jars of a builder",
    "packages of spark-defaults",
    "packages of the environment",
    "packages of spark-submit",
    "jars of spark-submit",
    "class path of a builder",
    "class path of spark-submit",
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FORMATS)
def test_however_a_job_gets_its_jars_the_sinks_are_told(
    run: Run, tmp_path: Path, name: str, way: str
) -> None:
    form, operations = FORMATS[name]
    paths = [str(path) for path in jars(form)]
    package = form.packages[SPARK][0]
    submit = str(spark_home() / "bin" / "spark-submit")
    options = dict(form.options)
    env: dict[str, str] = {}
    command: tuple[str, ...] = (sys.executable,)
    match way:
        case "jars of a builder":
            options["spark.jars"] = ",".join(paths)
        case "packages of spark-defaults":
            (tmp_path / "spark-defaults.conf").write_text(f"spark.jars.packages {package}\n")
            env["SPARK_CONF_DIR"] = str(tmp_path)
        case "packages of the environment":
            env["PYSPARK_SUBMIT_ARGS"] = f"--packages {package} pyspark-shell"
        case "packages of spark-submit":
            command = (submit, "--packages", package)
        case "jars of spark-submit":
            command = (submit, "--jars", ",".join(paths))
        case "class path of a builder":
            options["spark.driver.extraClassPath"] = ":".join(paths)
        case "class path of spark-submit":
            command = (submit, "--driver-class-path", ":".join(paths))
    chosen = [operation for operation in operations if operation.name.partition(",")[0] in {"create", "CTAS"}]
    told = ask(run, name, chosen, options, command=command, env=env)
    assert {operation.name: says(told, operation) for operation in chosen} == {
        operation.name: operation.says for operation in chosen
    }
