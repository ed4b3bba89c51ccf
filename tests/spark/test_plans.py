"""What is read in the text of a plan, as Spark prints it."""

from __future__ import annotations

import pytest
from sayings import CTAS, PLANS, files

from waybill.facets.event import DatasetName
from waybill.spark.tracking.plans import (
    COMMITTED,
    EXISTS,
    command_of,
    hides_write,
    is_around_files,
    reads_delta_log,
    sources_of,
    subqueries_of,
    table_of,
    targets_of,
    why_nothing,
    writes,
)

FILES = "Execute InsertIntoHadoopFsRelationCommand"
OUT = ["/out/a"]
SAVE = "Execute SaveIntoDataSourceCommand"
IGNORES = files("/out/a").replace("ErrorIfExists", "Ignore")


@pytest.mark.parametrize(
    ("name", "command", "targets", "reason"),
    [
        *((name, FILES, OUT, None) for name in ("files", "adaptive", "adapted", "simple")),
        *((name, FILES, OUT, None) for name in ("extended", "partitioned", "static partition")),
        ("delta", SAVE, OUT, None),
        ("delta, transaction", SAVE, OUT, COMMITTED),
        ("to a delta table", "AppendDataExecV1", ["/out/t"], COMMITTED),
        ("merge", "Execute MergeIntoCommand", OUT, None),
        ("create as select", "Execute CreateDataSourceTableAsSelectCommand", [], EXISTS),
        ("atomic", "AtomicCreateTableAsSelect", [], EXISTS),
        ("hive", "Execute CreateHiveTableAsSelectCommand", [], EXISTS),
        ("noop", "OverwriteByExpression", [], None),
        *((name, None, [], None) for name in ("view", "collect", "query")),
    ],
)
def test_a_plan_says_its_command_what_that_writes_to_and_why_it_may_have_written_nothing(
    name: str, command: str | None, targets: list[str], reason: str | None
) -> None:
    plan = PLANS[name].replace("{path}", "/out/a")
    assert command_of(plan) == command
    assert [target.name for target in targets_of(plan)] == targets
    assert why_nothing(plan) == reason


def test_a_mode_or_a_format_decides_whether_a_write_may_have_written_nothing() -> None:
    assert why_nothing(IGNORES) == why_nothing(PLANS["delta"].replace("Overwrite", "Ignore")) == EXISTS
    assert why_nothing(PLANS["to a delta table"].replace("DeltaTableV2", "OtherTable")) is None
    assert (command_of(""), targets_of(""), why_nothing("")) == (None, [], None)


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("s3a://lake/out/a", DatasetName("s3://lake", "out/a")),
        ("hdfs://name:9000/out/a", DatasetName("hdfs://name:9000", "/out/a")),
        ("file:/out/b c,d/", DatasetName("file", "/out/b c,d")),
    ],
)
def test_a_folder_is_named_as_the_listener_names_it(path: str, target: DatasetName) -> None:
    assert targets_of(files("/out/a").replace("file:/out/a", path)) == [target]


@pytest.mark.parametrize("plan", [PLANS["create"], PLANS["create of delta"], IGNORES])
def test_neither_plan_nor_jobs_tell_of_a_table_that_is_created_if_there_is_none(plan: str) -> None:
    assert hides_write(plan)
    sure = plan.replace(", true\n", ", false\n").replace("Ignore", "Append")
    assert not hides_write(sure)
    assert why_nothing(sure) is None


def test_what_delta_reads_of_its_log_is_no_write() -> None:
    scan = "== Physical Plan ==\n* Scan ExistingRDD Delta Table State #0 - file:/out/t/_delta_log (1)\n"
    assert reads_delta_log(scan)
    assert reads_delta_log("== Physical Plan ==\nScan json\nLocation: DeltaLogFileIndex [file:/out/t]\n")
    assert not reads_delta_log(PLANS["query"])


def command(name: str, says: str) -> str:
    """The plan of a command of Delta's or Iceberg's, with its arguments."""
    return f"== Physical Plan ==\n{name} (1)\n\n\n(1) {name.removeprefix('Execute ')}\nArguments: {says}\n\n"


TABLE = "DeltaTableV2(org.apache.spark.sql.SparkSession@30,file:/lake/t,Some(CatalogTable(\nTable: t)),None)"


@pytest.mark.parametrize(
    ("plan", "targets", "table"),
    [
        (
            command("Execute UpdateCommand", "Delta[version=2, file:/lake/t], `db`.`t`, [id]"),
            ["/lake/t"],
            "`db`.`t`",
        ),
        (command("Execute RestoreTableCommand", TABLE), ["/lake/t"], None),
        (
            command(
                "Execute CreateDeltaTableCommand",
                "`k`, ErrorIfExists, CloneTableCommand x@1, `k`, s3a://b/k, Create",
            ),
            ["k"],
            "`k`",
        ),
        (
            command("Execute ConvertToDeltaCommand", "`parquet`.`/lake/p`, true"),
            ["/lake/p"],
            "`parquet`.`/lake/p`",
        ),
        (command("Execute DeleteCommand", "DeltaLog@4a, `db`.`t`, (url = file:/no)"), [], "`db`.`t`"),
        (command("TruncateTable", "lake.db.t, org.apache.spark.Strategy$$Lambda$1@66"), [], "lake.db.t"),
        (command("AppendData", "Lambda@46, IcebergWrite(table=lake.db.t, format=PARQUET)"), [], "lake.db.t"),
    ],
)
def test_a_command_names_the_folder_or_the_table_that_it_changes(
    plan: str, targets: list[str], table: str | None
) -> None:
    assert writes(plan)
    assert [target.name for target in targets_of(plan)] == targets
    assert table_of(plan) == table


@pytest.mark.parametrize(
    "name", ["AlterTable", "CreateOrReplaceTag", "DropTable", "Execute VacuumTableCommand"]
)
def test_a_command_that_changes_no_rows_is_no_write(name: str) -> None:
    assert not writes(command(name, "lake.db.t"))


def test_a_plan_names_what_is_read_also_in_subqueries_but_not_the_log_of_a_table() -> None:
    folders = [DatasetName("file", "/in/a"), DatasetName("file", "/lake/f"), DatasetName("s3://b", "c")]
    reads = PLANS["reads"]
    assert [one for one in sources_of(reads) if not isinstance(one, str)] == folders
    assert [one for one in sources_of(reads) if isinstance(one, str)] == [
        "lake.db.t",
        "spark_catalog.default.u",
    ]
    assert sources_of(subqueries_of(reads)) == folders[-1:]


def test_files_within_a_command_are_told_by_their_own_write_but_within_one_of_deltas_by_that() -> None:
    assert is_around_files(CTAS)
    assert is_around_files(command("Execute SaveAsV1TableCommand", "`t`"))
    assert is_around_files(
        command("AtomicReplaceTableAsSelect", "org.apache.iceberg.spark.SparkCatalog@1, db.t")
    )
    assert not is_around_files(command("AtomicReplaceTableAsSelect", "org.delta.DeltaCatalog@1, default.t"))
    assert not is_around_files(files("/out/a"))
