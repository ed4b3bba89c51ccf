"""Files by their inputs and producers, which events name and records do not."""

from __future__ import annotations

import contextlib
import json

import pytest
from events import event

from waybill.exporter import Query
from waybill.exporter.query import scan
from waybill.lineage import Lineage
from waybill.transport import Journal, Kind, NotFoundError, Settings, Tracker, flush
from waybill.transport.config import agree

ORDERS, DAILY = "sftp//in/orders.csv", "lake/daily"
DBT, SPARK = "https://example.org/dbt", "https://example.org/spark"


def file(did: str, *inputs: str, producer: str = DBT, at: str = "2026-01-31") -> bytes:
    """The end of a file of the Tracker, with these inputs."""
    facet = {"did": did, "systemName": "edge", "dataSource": "in", "filename": f"{did}.csv"}
    facets = {"waybill_deltaFile": {**facet, "finalState": "COMPLETE"}}
    return event(did, at=f"{at}T12:00:00Z", facets=facets, inputs=inputs, producer=producer)


@pytest.fixture
def told(settings: Settings) -> Settings:
    """A home with events, the last of which is not in the index yet."""
    with contextlib.closing(Journal(settings.home)) as journal:
        agree(journal, settings)
        journal.append(Kind.OPENLINEAGE, file("a", ORDERS, DAILY))
        journal.append(Kind.OPENLINEAGE, file("b", DAILY, producer=SPARK, at="2026-01-30"))
        sent = {"did": "r", "finalState": "COMPLETE", "created": 1_000, "completed": 2_000}
        journal.append(Kind.PROVENANCE, json.dumps([{**sent, "filename": "orders.csv"}]).encode())
        assert flush(settings).left == {}
        journal.append(Kind.OPENLINEAGE, file("c", ORDERS, producer=SPARK))
    return settings


def test_a_file_is_found_by_any_input_and_by_the_producer_as_soon_as_it_is_accepted(told: Settings) -> None:
    lineage = Lineage.open(told.home)

    def found(**conditions: object) -> list[str]:
        query = Query(**conditions)  # type: ignore[arg-type]
        records = lineage.find(query)
        assert lineage.count(query) == sum(lineage.sums(["state"], query).values()) == len(records)
        return sorted(record.did for record in records)

    assert found(input_dataset="sftp:/in/orders.csv") == ["a", "c"]
    assert found(input_dataset="orders.csv") == ["a", "c"]
    assert found(input_dataset="daily") == found(input_dataset="lake/daily") == ["a", "b"]
    assert found(input_dataset="in/orders.csv") == ["a", "c"], "the end of its name, as lineage takes it"
    assert found(input_dataset="rders.csv") == []
    assert found(producer=DBT) == ["a"]
    assert found(producer=SPARK) == ["b", "c"]
    assert found(producer=SPARK[:-1]) == []
    assert found(producer=SPARK, input_dataset="daily") == ["b"]
    assert found(producer=SPARK, dids=frozenset("ac")) == ["c"]
    assert found(producer=SPARK, filename="b*") == ["b"]
    assert found(producer=SPARK, since_ms=1769817600000) == ["c"], "2026-01-31"


def test_a_file_is_found_by_the_name_of_a_further_input(told: Settings) -> None:
    lineage = Lineage.open(told.home)
    assert sorted(record.did for record in lineage.find(Query(filename="daily"))) == ["a", "b"]
    assert sorted(record.did for record in lineage.find(Query(filename="orders.csv"))) == ["a", "c", "r"]


@pytest.mark.parametrize("query", [Query(producer=DBT), Query(input_dataset="a"), Query(missing_sink="b")])
def test_what_records_alone_do_not_tell_is_no_condition_of_theirs(told: Settings, query: Query) -> None:
    with pytest.raises(NotFoundError, match=r"ask by `waybill\.Lineage`"):
        list(scan(told.root, query))


def test_a_pattern_of_sinks_finds_what_is_in_no_file_yet(settings: Settings) -> None:
    with Tracker(settings=settings) as tracker, tracker.file("a.csv", data_source="in") as file:
        file.egress("warehouse")
    assert [record.did for record in Lineage.open(settings.home).find(Query(data_sink="ware*"))] == [file.did]
