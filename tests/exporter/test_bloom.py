from __future__ import annotations

import uuid
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st
from layouts import Layout, find, record

from waybill.exporter import IncompleteError, Query
from waybill.exporter.directory import raw_hours
from waybill.exporter.parquet import RAW_FILTERS, Encoder
from waybill.exporter.parquet.bloom import can_hold
from waybill.facets.arrow import to_table


def can_have(path: Path, text: str, row_group: int = 0) -> bool:
    """The answers of the first column's filter."""
    column = pq.read_metadata(path).row_group(row_group).column(0)
    return can_hold(pa.OSFile(str(path)), column, text)


def share_said_to_be_there(path: Path, row_group: int = 0) -> float:
    """For texts that are in no file."""
    return sum(can_have(path, f"absent-{number}", row_group) for number in range(2_000)) / 2_000


@settings(max_examples=40)
@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1), ndv=st.integers(1, 5_000)
)
def test_what_a_file_has_is_never_ruled_out(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], ndv: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "texts.parquet"
    options = {"text": {"ndv": ndv, "fpp": 0.01}}
    pq.write_table(pa.table({"text": texts}), path, bloom_filter_options=options)
    assert all(can_have(path, text) for text in texts)


def test_nearly_all_that_a_file_has_not_is_ruled_out(tmp_path: Path) -> None:
    path = tmp_path / "texts.parquet"
    table = pa.table({"text": [str(uuid.uuid4()) for _ in range(20_000)]})
    pq.write_table(table, path, bloom_filter_options={"text": {"ndv": 20_000, "fpp": 0.01}})
    assert share_said_to_be_there(path) < 0.02


def test_the_filter_of_another_writer_is_read_alike(tmp_path: Path) -> None:
    path = tmp_path / "texts.parquet"
    query = "COPY (SELECT 'text-' || (i % 500) AS text FROM range(5000) t(i)) TO ?"
    duckdb.execute(query, [str(path)])
    assert pq.read_metadata(path).row_group(0).column(0).bloom_filter_offset is not None
    assert all(can_have(path, f"text-{number}") for number in range(500))
    assert share_said_to_be_there(path) < 0.1


def test_a_first_row_group_that_is_small_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "records.parquet"
    encoder = Encoder(RAW_FILTERS, rows=3_000)
    encoder.add(to_table([record("alone")]))
    encoder.add(to_table([record(f"did-{number}") for number in range(3_000)]))
    path.write_bytes(encoder.finish())
    assert can_have(path, "did-2999", 1)
    assert share_said_to_be_there(path, 1) < 0.02


def test_without_a_filter_anything_may_be_there(tmp_path: Path) -> None:
    path = tmp_path / "texts.parquet"
    pq.write_table(pa.table({"text": ["a"]}), path)
    assert can_have(path, "b")


def damage(path: Path) -> None:
    """Overwrite the first column's rows."""
    data = bytearray(path.read_bytes())
    column = pq.read_metadata(path).row_group(0).column(0)
    data[column.data_page_offset : column.data_page_offset + 40] = bytes(40)
    path.write_bytes(data)


@pytest.mark.parametrize("compacted", [False, True])
def test_a_question_for_a_file_that_is_not_there_reads_no_rows(
    layout: Layout, *, compacted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    layout.write(*[record(f"did-{number:02}") for number in range(50)])
    if compacted:
        layout.compactor().compact(raw_hours(layout.root))
    (path,) = layout.compacted() if compacted else layout.raw()
    # Between the least and the greatest, so that statistics do not exclude it.
    absent = [text for number in range(49) if not can_have(path, text := f"did-{number:02}x")]
    damage(path)
    assert len(absent) > 20
    assert not any(find(layout.root, Query(did=did)) for did in absent)
    assert not caplog.messages
    with pytest.raises(IncompleteError, match="is damaged"):
        find(layout.root, Query(did="did-21"))
