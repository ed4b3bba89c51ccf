"""Files that arrived and did not get to a sink, against a model that follows each file by hand."""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings as such, strategies as st
from layouts import Layout, record
from msgspec import structs

from waybill.exporter import Query
from waybill.exporter.query import Conditions, TooManyError, cursor_of
from waybill.facets import FinalState, ProvenanceRecord
from waybill.facets.arrow import SCHEMA, from_table, to_table
from waybill.lineage import Lineage
from waybill.lineage.answers import UnknownNameError, missing
from waybill.transport import Journal, Kind, Settings
from waybill.transport.config import agree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

DIDS = [f"d{at}" for at in range(6)]
RECORDS = st.lists(
    st.builds(
        record,
        did=st.sampled_from(DIDS),
        parent_did=st.none() | st.sampled_from(DIDS),
        filename=st.sampled_from(["a", "b"]),
        data_source=st.sampled_from(["in", "parts"]),
        data_sink=st.sampled_from([None, "lake", "report"]),
        final_state=st.sampled_from([FinalState.COMPLETE, FinalState.ERROR, FinalState.SPLIT]),
        at_ms=st.integers(0, 3),
    ),
    max_size=9,
    unique_by=lambda one: (one.did, one.data_sink, one.final_state, one.completed),
)


@pytest.fixture
def layout(root: Path) -> Layout:
    return Layout(root)


JOINS = st.dictionaries(st.sampled_from(DIDS), st.sets(st.sampled_from(DIDS), max_size=2), max_size=3)


def missing_by_hand(
    records: Sequence[ProvenanceRecord], joins: Mapping[str, set[str]], sink: str, source: str | None
) -> set[str]:
    children: defaultdict[str | None, set[str]] = defaultdict(set)
    for parent, joined in joins.items():
        children[parent] |= joined
    for one in records:
        children[one.parent_did].add(one.did)
    there = {one.did for one in records if one.data_sink == sink and one.final_state == "COMPLETE"}

    def got_there(did: str) -> bool:
        seen, now = {did}, {did}
        while now:
            now = {child for one in now for child in children[one]} - seen
            seen |= now
        return bool(seen & there)

    def is_work_on_another(one: ProvenanceRecord) -> bool:
        of_parent = [other for other in records if other.did == one.parent_did != one.did]
        same = [
            other
            for other in of_parent
            if (other.filename, other.data_source) == (one.filename, one.data_source)
        ]
        return bool(same) and all(other.final_state != "SPLIT" for other in of_parent)

    arrived = [one for one in records if source in {None, one.data_source}]
    left_out = {one.did for one in arrived if is_work_on_another(one)}
    return {one.did for one in arrived if not got_there(one.did)} - left_out


@such(max_examples=8)
@given(records=RECORDS, joins=JOINS, source=st.sampled_from([None, "in"]), oldest_first=st.booleans())
def test_what_is_missing_is_what_following_each_file_by_hand_misses(
    *, records: list[ProvenanceRecord], joins: dict[str, set[str]], source: str | None, oldest_first: bool
) -> None:
    every = to_table(records)
    checked: list[bool] = []

    def ask(query: Query, columns: Sequence[str] = SCHEMA.names) -> Iterator[pa.Table]:
        yield Conditions(query).filter(every).select(list(columns))

    def below(dids: Iterable[str]) -> dict[str, set[str]]:
        return {did: joins[did] for did in dids if did in joins}

    def answered(query: Query) -> list[ProvenanceRecord]:
        known = missing.Known(ask, ask, below, check_sink=lambda: checked.append(True))
        tables = missing.find_missing(known, query, began_ms={}, unended=set())
        return [one for table in tables for one in from_table(table)]

    query = Query(missing_sink="lake", data_source=source, oldest_first=oldest_first)
    found = answered(query)
    arrived = any(source in {None, one.data_source} for one in records)
    there = any(one.data_sink == "lake" and one.final_state == "COMPLETE" for one in records)
    assert bool(checked) == (not arrived or not there)
    assert [one.did for one in found] == list(dict.fromkeys(one.did for one in found))
    assert {one.did for one in found} == missing_by_hand(records, joins, "lake", source)
    for one in found:
        own = [other for other in records if other.did == one.did and source in {None, other.data_source}]
        assert one.completed == max(other.completed for other in own)
    ends = [(one.completed, one.did) for one in found]
    assert ends == sorted(ends, reverse=not oldest_first)
    first = answered(structs.replace(query, limit=1))
    rest = answered(structs.replace(query, after=cursor_of(first[0]))) if first else []
    assert [*first, *rest] == found


def year_of_months() -> list[ProvenanceRecord]:
    """A year in twelve months, of which nine get to the lake; Spark's runs name the month they work on."""
    months: dict[str, Any] = {"data_source": "months", "transforms": ()}
    found = [record("year", filename="year.zip", final_state=FinalState.SPLIT, data_sink=None)]
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


@pytest.mark.parametrize("is_filed", [True, False])
def test_spark_s_own_rows_of_a_tracked_file_do_not_count_besides_it(
    layout: Layout, settings: Settings, *, is_filed: bool
) -> None:
    records = year_of_months()

    def found(query: Query) -> list[str]:
        place = Lineage.open(layout.root if is_filed else settings.home)
        assert place.count(query) == len(place.find(query))
        return [one.did for one in place.find(query)]

    if is_filed:
        layout.write(*records)
    else:
        with contextlib.closing(Journal(settings.home)) as journal:
            sent = [
                {"did": one.did, "parentDid": one.parent_did, "systemName": one.system_name}
                | {"dataSource": one.data_source, "filename": one.filename, "dataSink": one.data_sink}
                | {"finalState": one.final_state, "created": one.created, "completed": one.completed}
                for one in records
            ]
            agree(journal, settings)
            journal.append(Kind.PROVENANCE, json.dumps(sent).encode())
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
    assert len(by_did) == 3 + 18, "what SQL says that compares dids"


def test_too_many_files_are_refused_with_what_to_do(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    layout.write(*year_of_months())
    monkeypatch.setattr(missing, "FILES_MAX", 9)
    with pytest.raises(TooManyError, match="narrow the question"):
        Lineage.open(layout.root).find(Query(missing_sink="lake"))
    [found] = Lineage.open(layout.root).find(Query(missing_sink="lake", filename="11.csv"))
    assert found.did == "month-11"
