"""Files that arrived and did not get to a sink; `test_answers.py` has a model that follows each by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from layouts import Layout, record

from waybill.exporter import Query
from waybill.exporter.query import TooManyError
from waybill.facets import FinalState, ProvenanceRecord
from waybill.lineage import Lineage
from waybill.lineage.answers import UnknownNameError, missing

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def layout(root: Path) -> Layout:
    return Layout(root)


def year_of_months() -> list[ProvenanceRecord]:
    """A year in twelve months, of which nine get to the lake; Spark's runs name the month they work on."""
    months: dict[str, Any] = {"data_source": "months", "transforms": ()}
    # The year has the name of its tenth month, which is not work on it for all that.
    found = [record("year", filename="09.csv", final_state=FinalState.SPLIT, data_sink=None, **months)]
    for at in range(12):
        month: dict[str, Any] = {"filename": f"{at:02}.csv", "at_ms": at, **months}
        paths: list[tuple[str | None, str]] = [("lake", "COMPLETE"), ("report", "COMPLETE")]
        if at >= 9:
            paths = [(None, ("ERROR", "FILTERED", "CANCELLED")[at - 9])]
        found += [
            record(f"month-{at}", parent_did="year", data_sink=sink, final_state=FinalState(state), **month)
            for sink, state in paths
        ]
        if at < 9:
            found += [
                record(
                    f"spark-{at}-{sink}", parent_did=f"month-{at}", data_sink=f"file:/{sink}/{at}", **month
                )
                for sink in ("lake", "report")
            ]
    return found


def test_spark_s_own_rows_of_a_tracked_file_do_not_count_besides_it(layout: Layout) -> None:
    records = year_of_months()
    layout.write(*records)

    def found(query: Query) -> list[str]:
        place = Lineage.open(layout.root)
        assert place.count(query) == len(place.find(query))
        return [one.did for one in place.find(query)]

    missing_months = ["month-11", "month-10", "month-9"]
    assert found(Query(missing_sink="lake", data_source="months")) == missing_months
    assert found(Query(missing_sink="lake")) == missing_months, "the year got there in parts"
    assert found(Query(missing_sink="lake", final_state=FinalState.ERROR)) == ["month-9"]
    assert found(Query(missing_sink="lake", data_source="in")) == []
    with pytest.raises(UnknownNameError, match="there are lake"):
        found(Query(missing_sink="laek", data_source="in"))
    assert found(Query(dids=frozenset())) == found(Query(parent_dids=frozenset())) == []
    by_did = {one.did for one in records if one.data_source == "months"}
    by_did -= {one.did for one in records if one.data_sink == "lake"}
    assert len(by_did) == 1 + 3 + 18, "what SQL says that compares dids"


def test_too_many_files_are_refused_with_what_to_do(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    layout.write(*year_of_months())
    monkeypatch.setattr(missing, "FILES_MAX", 9)
    with pytest.raises(TooManyError, match="narrow the question"):
        Lineage.open(layout.root).find(Query(missing_sink="lake"))
    [found] = Lineage.open(layout.root).find(Query(missing_sink="lake", filename="11.csv"))
    assert found.did == "month-11"
