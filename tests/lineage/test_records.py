"""The records of an answer as a list and as tables."""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl
import pytest
from layouts import NODE, START_MS, record

from waybill.exporter import Query
from waybill.exporter.compaction import RawWriter
from waybill.exporter.names import RawName
from waybill.facets.arrow import SCHEMA, from_table
from waybill.lineage import Lineage, MissingPackageError, Records

RECORDS = Records([record("a", annotations={"k": "v"}), record("b", parent_did="a")])


def test_an_answer_is_a_list_that_can_be_had_as_a_table(tmp_path: Path) -> None:
    RawWriter(tmp_path).write(RawName(NODE, 1, 2), RECORDS)
    found = Lineage.open(tmp_path).find(Query(did="b"))
    assert found == [RECORDS[1]]
    assert found.to_arrow().schema == SCHEMA
    assert from_table(RECORDS.to_arrow()) == RECORDS
    assert Records().to_arrow() == SCHEMA.empty_table()


def test_it_can_be_had_for_pandas() -> None:
    pytest.importorskip("pandas")
    frame = RECORDS.to_pandas()
    assert [*frame.columns] == SCHEMA.names
    assert frame["annotations"].to_list() == [{"k": "v"}, None]
    assert frame["completed"].map(lambda instant: instant.timestamp() * 1_000).to_list() == [START_MS] * 2


def test_it_can_be_had_for_polars() -> None:
    frame = RECORDS.to_polars()
    assert isinstance(frame, pl.DataFrame)
    assert frame["did"].to_list() == ["a", "b"]


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError, match=f"pip install {package}"):
        getattr(RECORDS, f"to_{package}")()
