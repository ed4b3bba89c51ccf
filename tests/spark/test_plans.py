"""What is read in the text of a plan, as Spark prints it."""

from __future__ import annotations

import pytest
from sayings import COLLECT, CTAS, MERGE, files

from waybill.facets.event import DatasetName
from waybill.spark.tracking.plans import command_of, target_of

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


@pytest.mark.parametrize(
    ("plan", "command"),
    [
        (files("/out/a"), FILES),
        (ADAPTIVE, FILES),
        (ADAPTED, FILES),
        (SIMPLE, FILES),
        (EXTENDED, FILES),
        (DELTA, "Execute SaveIntoDataSourceCommand"),
        (MERGE, "Execute MergeIntoCommand"),
        (CTAS, "Execute CreateDataSourceTableAsSelectCommand"),
        (NOOP, "OverwriteByExpression"),
        (VIEW, None),
        (COLLECT, None),
        (QUERY, None),
        ("", None),
    ],
)
def test_a_command_is_known_by_its_name_and_a_query_is_none(plan: str, command: str | None) -> None:
    assert command_of(plan) == command


@pytest.mark.parametrize(
    "plan",
    [files("/out/a"), files("/out/a/"), ADAPTIVE, ADAPTED, SIMPLE, EXTENDED, PARTITIONED, STATIC, DELTA],
)
def test_a_plan_that_writes_files_names_its_folder(plan: str) -> None:
    assert target_of(plan) == DatasetName("file", "/out/a")


@pytest.mark.parametrize("plan", [MERGE, CTAS, NOOP, VIEW, COLLECT, QUERY, ""])
def test_a_plan_that_names_no_folder_has_no_target(plan: str) -> None:
    assert target_of(plan) is None
