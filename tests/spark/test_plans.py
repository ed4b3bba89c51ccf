"""What is read in the text of a plan, as Spark prints it."""

from __future__ import annotations

import pytest
from sayings import COLLECT, CTAS, MERGE, files

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
PARAGRAPH = f"(5) {FILES}\nInput: []\nArguments: file:/out/a, false, Parquet, [path=/out/a], Append, [x]\n\n"

ADAPTIVE = (
    f"== Physical Plan ==\nAdaptiveSparkPlan (6)\n+- {FILES} (5)\n   +- WriteFiles (4)\n\n\n" + PARAGRAPH
)
ADAPTED = (
    "== Physical Plan ==\nAdaptiveSparkPlan (10)\n+- == Current Plan ==\n"
    f"   {FILES} (6)\n   +- WriteFiles (5)\n+- == Initial Plan ==\n   {FILES} (9)\n\n\n" + PARAGRAPH
)
QUERY = (
    "== Physical Plan ==\nAdaptiveSparkPlan (6)\n+- == Current Plan ==\n   ShuffleQueryStage (4)\n"
    "   +- Exchange (3)\n+- == Initial Plan ==\n   Exchange (5)\n\n\n"
)
SIMPLE = (
    f"== Physical Plan ==\n{FILES} file:/out/a, false, Parquet, [path=/out/a], ErrorIfExists, [id]\n"
    "+- WriteFiles\n   +- *(1) Range (0, 5, step=1, splits=2)\n"
)
EXTENDED = f"== Parsed Logical Plan ==\nInsert into /out/other\n\n{SIMPLE}"
PARTITIONED = (
    f"== Physical Plan ==\n{FILES} (4)\n+- WriteFiles (3)\n\n\n(4) {FILES}\nInput: []\n"
    'Arguments: file:/out/a, false, [id#2L], JSON, [__partition_columns=["id"], path=/out/a], Append\n\n'
)
STATIC = (
    f"== Physical Plan ==\n{FILES} (4)\n\n\n(4) {FILES}\nInput: []\n"
    "Arguments: file:/out/a, [day=1], false, [day#2L], Parquet, [path=file:/out/a], Append, [id, day]\n\n"
)
DELTA = (
    "== Physical Plan ==\nExecute SaveIntoDataSourceCommand (1)\n   +- SaveIntoDataSourceCommand (2)\n\n\n"
    "(1) Execute SaveIntoDataSourceCommand\nOutput: []\n\n(2) SaveIntoDataSourceCommand\n"
    "Arguments: org.apache.spark.sql.delta.sources.DeltaDataSource@805f549, [path=/out/a], Overwrite\n\n"
    "(3) LogicalRelation\nArguments: [path=/in/b]\n\n"
)
NOOP = "== Physical Plan ==\nOverwriteByExpression noop-table (3)\n+- * Project (2)\n\n\n"
VIEW = "== Physical Plan ==\nExecute CreateViewCommand (1)\n   +- CreateViewCommand (2)\n\n\n"


ATOMIC = (
    "== Physical Plan ==\nAtomicCreateTableAsSelect (1)\n\n\n(1) AtomicCreateTableAsSelect\n"
    "Arguments: org.apache.iceberg.spark.SparkCatalog@67ca111, db.t, Project [id#0L, v#1], "
    "TableSpec(Map(),Some(iceberg),Map(),None,None,None,None,false), true\n\n\n"
)
HIVE = (
    "== Physical Plan ==\nExecute CreateHiveTableAsSelectCommand (1)\n\n\n"
    "(2) CreateHiveTableAsSelectCommand\nArguments: [Database: default, TableName: hc]\n\n"
)
TRANSACTION = DELTA.replace("[path=/out/a], Overwrite", "[txnappid=a, txnversion=1, path=/out/a], Append")
TO_DELTA_TABLE = (
    "== Physical Plan ==\nAppendDataExecV1 (1)\n\n\n(1) AppendDataExecV1\n"
    "Arguments: DeltaTableV2(org.apache.spark.sql.SparkSession@5aac67af,file:/out/t,Some(CatalogTable(\n"
    "Catalog: spark_catalog\nTable: t)),Some(default.t),None,Map()), SubqueryAlias good\n\n\n"
)
CREATE = (
    "== Physical Plan ==\nExecute CreateDataSourceTableCommand (1)\n\n\n"
    "(1) Execute CreateDataSourceTableCommand\nOutput: []\n\n"
    "(2) CreateDataSourceTableCommand\nArguments: `spark_catalog`.`default`.`p`, true\n\n\n"
)
CREATE_V2 = (
    "== Physical Plan ==\nCreateTable (1)\n\n\n(1) CreateTable\n"
    "Arguments: org.apache.spark.sql.delta.catalog.DeltaCatalog@26e6807f, default.t, "
    "[ColumnImpl(id,LongType)], TableSpec(Map(),Some(delta),Map(),None,None,None,None,false), true\n\n\n"
)


OUT = ["/out/a"]
SAVE = "Execute SaveIntoDataSourceCommand"
IGNORES = files("/out/a").replace("ErrorIfExists", "Ignore")


@pytest.mark.parametrize(
    ("plan", "command", "targets", "reason"),
    [
        *((plan, FILES, OUT, None) for plan in (files("/out/a"), files("/out/a/"), ADAPTIVE, ADAPTED)),
        *((plan, FILES, OUT, None) for plan in (SIMPLE, EXTENDED, PARTITIONED, STATIC)),
        (IGNORES, FILES, OUT, EXISTS),
        (DELTA, SAVE, OUT, None),
        (DELTA.replace("Overwrite", "Ignore"), SAVE, OUT, EXISTS),
        (TRANSACTION, SAVE, OUT, COMMITTED),
        (TO_DELTA_TABLE, "AppendDataExecV1", ["/out/t"], COMMITTED),
        (TO_DELTA_TABLE.replace("DeltaTableV2", "OtherTable"), "AppendDataExecV1", [], None),
        (MERGE.format(path="/out/a"), "Execute MergeIntoCommand", OUT, None),
        (CTAS, "Execute CreateDataSourceTableAsSelectCommand", [], EXISTS),
        (ATOMIC, "AtomicCreateTableAsSelect", [], EXISTS),
        (HIVE, "Execute CreateHiveTableAsSelectCommand", [], EXISTS),
        (NOOP, "OverwriteByExpression", [], None),
        *((plan, None, [], None) for plan in (VIEW, COLLECT, QUERY, "")),
    ],
)
def test_a_plan_says_its_command_what_that_writes_to_and_why_it_may_have_written_nothing(
    plan: str, command: str | None, targets: list[str], reason: str | None
) -> None:
    assert command_of(plan) == command
    assert [target.name for target in targets_of(plan)] == targets
    assert why_nothing(plan) == reason


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("s3a://lake/out/a", DatasetName("s3://lake", "out/a")),
        ("hdfs://name:9000/out/a", DatasetName("hdfs://name:9000", "/out/a")),
        ("file:/out/b c,d", DatasetName("file", "/out/b c,d")),
    ],
)
def test_a_folder_is_named_as_the_listener_names_it(path: str, target: DatasetName) -> None:
    assert targets_of(files("/out/a").replace("file:/out/a", path)) == [target]


@pytest.mark.parametrize("plan", [CREATE, CREATE_V2, IGNORES])
def test_neither_plan_nor_jobs_tell_of_a_table_that_is_created_if_there_is_none(plan: str) -> None:
    assert hides_write(plan)
    sure = plan.replace(", true\n", ", false\n").replace("Ignore", "Append")
    assert not hides_write(sure)
    assert why_nothing(sure) is None


def test_what_delta_reads_of_its_log_is_no_write() -> None:
    scan = "== Physical Plan ==\n* Scan ExistingRDD Delta Table State #0 - file:/out/t/_delta_log (1)\n"
    assert reads_delta_log(scan)
    assert reads_delta_log("== Physical Plan ==\nScan json\nLocation: DeltaLogFileIndex [file:/out/t]\n")
    assert not reads_delta_log(QUERY)


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


READS = (
    "== Physical Plan ==\n* Project (4)\n\n\n(1) Scan parquet \nOutput [1]: [k]\nBatched: true\n"
    "Location: InMemoryFileIndex [file:/in/a/day=1/hour=2, ... 3 entries]\nReadSchema: struct<k:bigint>\n\n"
    "(2) BatchScan lake.db.t\nOutput: [k]\n\n(3) Scan parquet spark_catalog.default.u\nOutput: [k]\n"
    "Location: TahoeBatchFileIndex [file:/lake/u]\n\n(4) Scan DeltaCDFRelation(Mode("
    "Snapshot(path=file:/lake/f/_delta_log, version=1, x) db.f [codegen id : 1]\nOutput: [k]\n\n"
    "(5) Scan json \nOutput [1]: [add]\nLocation: DeltaLogFileIndex [file:/lake/u/_delta_log/0.json]\n\n"
    "===== Subqueries =====\n\n(6) Scan csv \nOutput [1]: [k]\nLocation: InMemoryFileIndex [s3a://b/c]\n\n"
)


def test_a_plan_names_what_is_read_also_in_subqueries_but_not_the_log_of_a_table() -> None:
    folders = [DatasetName("file", "/in/a"), DatasetName("file", "/lake/f"), DatasetName("s3://b", "c")]
    assert [one for one in sources_of(READS) if not isinstance(one, str)] == folders
    assert [one for one in sources_of(READS) if isinstance(one, str)] == [
        "lake.db.t",
        "spark_catalog.default.u",
    ]
    assert sources_of(subqueries_of(READS)) == folders[-1:]


def test_files_within_a_command_are_told_by_their_own_write_but_within_one_of_deltas_by_that() -> None:
    assert is_around_files(CTAS)
    assert is_around_files(command("Execute SaveAsV1TableCommand", "`t`"))
    assert is_around_files(
        command("AtomicReplaceTableAsSelect", "org.apache.iceberg.spark.SparkCatalog@1, db.t")
    )
    assert not is_around_files(command("AtomicReplaceTableAsSelect", "org.delta.DeltaCatalog@1, default.t"))
    assert not is_around_files(files("/out/a"))
