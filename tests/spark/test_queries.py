"""The seed queries of docs/queries.md: the same text in DuckDB and in Spark, over the same files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from waybill.exporter import Compactor, RawName, RawWriter
from waybill.facets import FinalState, ProvenanceRecord

if TYPE_CHECKING:
    from conftest import Run

PAGE = Path(__file__).parents[2] / "docs" / "queries.md"
START_MS = 1_767_225_600_000
YEAR, FIRST, SECOND = (f"0198f000-0000-7000-8000-00000000000{at}" for at in (1, 2, 3))

PROGRAM = """
import json
from pathlib import Path
from pyspark.sql import SparkSession

import os
os.environ["JAVA_HOME"] = str(waybill.spark.find_java().home)
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config(
    "spark.sql.session.timeZone", "UTC").config("spark.sql.shuffle.partitions", "1").getOrCreate()
root, queries = sys.argv[3:5]
spark.read.parquet(root + "/provenance/compacted/*/*").createOrReplaceTempView("provenance")
answers = {name: [[str(cell) for cell in row] for row in spark.sql(text).collect()]
    for name, text in json.loads(queries).items()}
Path(OUT).mkdir(exist_ok=True)
Path(OUT, "answers.json").write_text(json.dumps(answers))
spark.stop()
"""


def queries() -> dict[str, str]:
    """Each query of the page by its heading."""
    found = re.findall(
        r"^## ([^\n]+)\n\n```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    return dict(found)


def record(did: str, at_ms: int, **changes: Any) -> ProvenanceRecord:  # noqa: ANN401 - of any field
    fields = {
        "did": did,
        "parent_did": YEAR,
        "system_name": "edge",
        "data_source": "halves",
        "filename": "first.csv",
        "transforms": ("enrich",),
        "final_state": FinalState.COMPLETE,
        "created": START_MS,
        "completed": START_MS + at_ms,
        "annotations": {"customer": "acme"},
    }
    return ProvenanceRecord(**{**fields, **changes})


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file split in two: the first fans out, the second fails."""
    folder = tmp_path_factory.mktemp("root")
    year = record(
        YEAR,
        0,
        parent_did=None,
        filename="year.csv",
        data_source="sftp-in",
        final_state=FinalState.SPLIT,
        annotations=None,
    )
    failed = record(
        SECOND,
        3_600_000,
        filename="second.csv",
        final_state=FinalState.ERROR,
        annotations={"errorCause": "no, 'x'"},
    )
    other = record(
        "0198f000-0000-7000-8000-000000000009", 5, parent_did=None, system_name="core", filename="x.csv"
    )
    records = [year, record(FIRST, 1, data_sink="lake"), record(FIRST, 2, data_sink="report"), failed, other]
    RawWriter(folder).write(RawName("a1", 1, 9), records)
    Compactor(folder).compact()
    return folder


def duckdb_answers(root: Path) -> dict[str, list[list[str]]]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        (view,) = re.findall(r"^CREATE VIEW [^\n]+;$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
        connection.execute(view.replace("/data/lineage", str(root)))
        return {
            name: [_texts(row) for row in connection.execute(text).fetchall()]
            for name, text in queries().items()
        }


def _texts(row: tuple[Any, ...]) -> list[str]:
    return [str(cell.replace(tzinfo=None)) if hasattr(cell, "tzinfo") else str(cell) for cell in row]


def test_each_query_finds_what_its_heading_says(root: Path) -> None:
    answers = duckdb_answers(root)
    assert [row[3] for row in answers["A file by its name"]] == ["lake", "report"]
    assert [row[1] for row in answers["Files by an annotation"]] == ["first.csv", "first.csv", "x.csv"]
    assert answers["Errors by system"] == [["edge", "no, 'x'", "1"]]
    assert answers["Where the files of a source went"] == [["None", "SPLIT", "1"]]
    assert [row[0] for row in answers["The children of a split"]] == ["first.csv", "first.csv", "second.csv"]
    assert [row[2] for row in answers["A file and its children"]] == [
        "year.csv",
        "first.csv",
        "first.csv",
        "second.csv",
    ]
    assert len(answers) == 6


def test_spark_answers_each_query_as_duckdb_does(root: Path, run: Run) -> None:
    ran = run(PROGRAM, arguments=(str(root), json.dumps(queries())), env={"TZ": "UTC"})
    assert ran.status == 0, ran.stderr
    assert json.loads((ran.out / "answers.json").read_text()) == duckdb_answers(root)
