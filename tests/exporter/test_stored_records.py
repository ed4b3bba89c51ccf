"""Stored entries become records in bulk; events without records are left to be folded."""

from __future__ import annotations

import json

from layouts import event

from waybill.exporter.stored_records import decode_entries
from waybill.facets import AnnotationRule
from waybill.facets.arrow import SCHEMA, from_table
from waybill.transport import Kind
from waybill.transport.journal import Entry

GOOD = {"did": "sent", "finalState": "COMPLETE", "created": 1, "completed": 2}


def facet(**fields: object) -> dict[str, object]:
    return {"waybill_deltaFile": {"_producer": "p", "_schemaURL": "s", **fields}}


def entry(body: bytes, kind: Kind = Kind.OPENLINEAGE, stamp: str = "") -> Entry:
    return Entry(1, 1, kind, stamp, body)


def test_arrays_and_events_with_the_facet_are_records_and_the_other_run_events_are_left_to_be_folded() -> (
    None
):
    entries = [
        entry(event("r1", "COMPLETE", 5, facets=facet(did="faceted", annotations={"k": "v", "secret": "x"}))),
        entry(json.dumps([GOOD]).encode(), Kind.PROVENANCE, "stamped"),
        entry(event("r2", "COMPLETE", 5)),
        entry(event("r3", "START", 5, facets=facet(did="begun"))),
        entry(b"flush", Kind.MARK),
    ]
    failed: list[Entry] = []
    found = decode_entries(
        entries,
        system_name="own",
        rule=AnnotationRule(frozenset({"k"})),
        on_error=lambda one, _error: failed.append(one),
    )
    assert found.records.schema.equals(SCHEMA)
    records = {record.did: record for record in from_table(found.records)}
    assert {did: record.system_name for did, record in records.items()} == {
        "faceted": "own",
        "sent": "stamped",
    }
    assert records["faceted"].annotations == {"k": "v"}
    assert [one and one.run.runId for one in found.events] == ["r1", None, "r2", "r3", None]
    assert failed == []


def test_an_entry_that_cannot_be_read_is_told_and_left_out_alone() -> None:
    good = event("r1", "COMPLETE", 5, facets=facet(did="d1"))
    wrong = event("r2", "COMPLETE", 5, facets=facet(did="d2", created="yesterday"))
    entries = [
        entry(wrong),
        entry(good),
        entry(b"{"),
        entry(b"[1]", Kind.PROVENANCE),
    ]
    failed: list[bytes] = []
    found = decode_entries(
        entries,
        system_name="own",
        rule=AnnotationRule(),
        on_error=lambda one, _error: failed.append(one.body),
    )
    assert sorted(failed) == sorted([wrong, b"{", b"[1]"])
    assert [record.did for record in from_table(found.records)] == ["d1"]
    assert [one and one.run.runId for one in found.events] == [None, "r1", None, None]


def test_no_entries_are_an_empty_table() -> None:
    found = decode_entries([], system_name="", rule=AnnotationRule(), on_error=lambda _one, _error: None)
    assert (found.records.num_rows, found.events) == (0, [])
