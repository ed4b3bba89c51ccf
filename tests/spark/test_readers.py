"""What others make of our files: the rows as we have them, and the queries of docs/queries.md."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from events import event

from waybill.exporter import Compactor
from waybill.exporter.archive import EVENTS_SCHEMA, Archive
from waybill.exporter.compaction import RawWriter
from waybill.exporter.names import RawName
from waybill.facets import FinalState, ProvenanceRecord
from waybill.facets.arrow import SCHEMA, to_table
from waybill.transport import Journal, Kind, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "queries.md"
START_MS = 1_767_225_600_000
YEAR, FIRST, SECOND = (f"0198f000-0000-7000-8000-00000000000{at}" for at in (1, 2, 3))
COMPACTED = "provenance/compacted/*/*/*.parquet"
EVENTS = "events/*/*/*.parquet"
FULL_ROWS = 140_000
"""More than a row group has."""


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
    archive(folder)
    return folder


def archive(root: Path) -> None:
    """One file of the archive, with what an entry may have and may lack."""
    settings = Settings.load({"home": root / "home", "root": root}, origin="tests", env={}, cwd=root)
    journal = Journal(settings.home)
    said = event(YEAR, at="2026-01-01T00:00:00.000001Z", job="edge/load", producer="tests")
    journal.append(Kind.OPENLINEAGE, said, "edge")
    journal.append(Kind.PROVENANCE, b'[{"did": "\\u00fc"}]', "")
    journal.mark(b"flush")
    Archive(journal, settings).finish()
    journal.close()


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
    """The cells as text, and times in UTC: Spark gives them in this machine's zone, and does not say so."""
    return [str(cell.astimezone(UTC) if isinstance(cell, datetime) else cell) for cell in row]


def test_each_query_finds_what_its_heading_says(root: Path) -> None:
    answers = duckdb_answers(root)
    assert [row[3] for row in answers["Find a file by name"]] == ["lake", "report"]
    assert [row[1] for row in answers["Find files by annotation"]] == ["first.csv", "first.csv", "x.csv"]
    assert answers["Count errors by system"] == [["edge", "no, 'x'", "1"]]
    assert answers["Show where a source's files went"] == [["None", "SPLIT", "1"]]
    assert [row[0] for row in answers["List the children of a split"]] == [
        "first.csv",
        "first.csv",
        "second.csv",
    ]
    assert [row[2] for row in answers["List a file and its children"]] == [
        "year.csv",
        "first.csv",
        "first.csv",
        "second.csv",
    ]
    assert len(answers) == 6


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One hour of more rows than a row group has."""
    root = tmp_path_factory.mktemp("full")
    numbers = pa.array(range(FULL_ROWS), pa.int64())
    text = pc.utf8_lpad(numbers.cast(pa.string()), 8, "0")
    table = to_table([record(YEAR, 0)]).take(pa.array([0] * FULL_ROWS))
    changed = {
        "did": pc.binary_join_element_wise("0198f000-0000-7000-8000-0000", text, ""),
        "filename": pc.binary_join_element_wise("file-", text, ".csv", ""),
        "completed": pc.add(numbers, START_MS).cast(SCHEMA.field("completed").type),
    }
    for name, values in changed.items():
        table = table.set_column(SCHEMA.get_field_index(name), SCHEMA.field(name), values)
    RawWriter(root).write_tables(RawName("a1", 1, 9), [table])
    Compactor(root).compact()
    return root


READ = [("provenance", COMPACTED, SCHEMA, 5), ("events", EVENTS, EVENTS_SCHEMA, 3)]


@pytest.mark.spark_truth
def test_spark_reads_the_types_and_rows_and_answers_each_query_as_duckdb_does(
    root: Path, full: Path, plain_spark: SparkSession
) -> None:
    session = plain_spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.shuffle.partitions", "1")
    for name, files, *_ in READ:
        frame = session.read.parquet(f"{root}/{files.removesuffix('/*.parquet')}")
        frame.createOrReplaceTempView(name)
        paths = sorted(root.glob(files))
        expected = plain(pa.concat_tables([pq.ParquetFile(path).read() for path in paths]))
        assert plain(frame.toArrow()) == expected
    assert session.table("provenance").schema.simpleString() == (
        "struct<did:string,parent_did:string,system_name:string,data_source:string,filename:string,"
        "transforms:array<string>,data_sink:string,final_state:string,created:timestamp,completed:timestamp,"
        "annotations:map<string,string>>"
    )
    answers = {name: [_texts(row) for row in session.sql(text).collect()] for name, text in queries().items()}
    assert answers == duckdb_answers(root)
    whole = session.read.parquet(f"{full}/provenance/compacted/*/*")
    found = whole.filter(whole.filename == "file-00131072.csv")
    assert (whole.count(), found.count()) == (FULL_ROWS, 1)


@pytest.mark.parametrize(("name", "files", "schema", "rows"), READ)
def test_every_reader_finds_the_same_rows(
    root: Path, name: str, files: str, schema: pa.Schema, rows: int
) -> None:
    paths = sorted(root.glob(files))
    expected = plain(pa.concat_tables([pq.ParquetFile(path).read() for path in paths]))
    assert len(expected) == rows, name
    assert list(expected[0]) == schema.names
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.read_parquet(str(root / files), hive_partitioning=False).to_arrow_table()
    assert plain(found) == expected
    assert plain(pl.read_parquet(paths, hive_partitioning=False).to_arrow()) == expected


def plain(table: pa.Table) -> list[dict[str, Any]]:
    """The rows in one order, maps as dictionaries: some readers know a map as a list of pairs."""
    rows = [{name: _plain(name, value) for name, value in row.items()} for row in table.to_pylist()]
    return sorted(rows, key=str)


def _plain(name: str, value: Any) -> Any:  # noqa: ANN401 - of any column
    if name == "annotations" and value is not None:
        return dict(tuple(pair.values()) if isinstance(pair, dict) else pair for pair in value)
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def test_a_search_for_a_file_leaves_out_what_cannot_have_it(full: Path) -> None:
    (path,) = full.glob(COMPACTED)
    footer = pq.read_metadata(path)
    assert [footer.row_group(at).num_rows for at in range(footer.num_row_groups)] == [131_072, 8_928]
    groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
    columns = [group.column(at) for group in groups for at in range(group.num_columns)]
    assert {column.compression for column in columns} == {"ZSTD"}
    assert all(column.is_stats_set for column in columns)
    with duckdb.connect() as connection:
        for column, there, absent in (
            ("did", "0198f000-0000-7000-8000-000000131072", "0198f000-0000-7000-8000-1000{:08}"),
            ("filename", "file-00131072.csv", "feed-{:08}.csv"),
            ("parent_did", YEAR, "0198f000-0000-7000-8000-1000{:08}"),
        ):

            def excluded(value: str, column: str = column) -> list[bool]:
                probe = "SELECT bloom_filter_excludes FROM parquet_bloom_probe(?, ?, ?) ORDER BY row_group_id"
                return [row[0] for row in connection.execute(probe, [str(path), column, value]).fetchall()]

            assert excluded(there)[-1] is False
            hits = [not all(excluded(absent.format(at))) for at in range(40)]
            assert sum(hits) < 30, column
        query = "SELECT count(*) FROM read_parquet(?) WHERE filename = 'file-00131072.csv'"
        assert connection.execute(query, [str(path)]).fetchall() == [(1,)]
    frame = pl.scan_parquet(path).filter(pl.col("filename") == "file-00131072.csv").collect()
    assert frame.height == 1
