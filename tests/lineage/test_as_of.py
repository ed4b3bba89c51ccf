"""The journey of a file as it was known at an earlier time."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given, settings as given_settings, strategies as st
from keeping import settings_in
from layouts import START_MS, event

from waybill.exporter.query import EntriesGoneError
from waybill.facets import decode_records, merge_all
from waybill.lineage import Journey, Lineage, trace_as_of
from waybill.transport import Journal, NotFoundError, flush
from waybill.transport.config import agree
from waybill.transport.journal import Kind

if TYPE_CHECKING:
    from waybill.facets import ProvenanceRecord
    from waybill.transport import Settings

DIDS = [f"did-{number}" for number in range(5)]
RUN = "0198f000-0000-7000-8000-00000000000a"

RECORD = st.builds(
    lambda did, parent, sink, part: {
        "did": did,
        "parentDid": parent,
        "finalState": "COMPLETE",
        "created": START_MS,
        "completed": START_MS + DIDS.index(did),
        "systemName": "edge",
        "dataSource": "in",
        "filename": f"{did}.csv",
        "dataSink": sink,
        "annotations": {"note": part},
    },
    st.sampled_from(DIDS),
    # Late parents: a repeat may name the parent that the first did not.
    st.sampled_from([None, "did-0"]),
    st.sampled_from([None, "lake"]),
    st.sampled_from(["a", "b"]),
)


def home_at(folder: Path) -> Settings:
    given = {"provenance_enabled": True, "provenance_annotations_allowed": "note"}
    settings = settings_in(folder).with_values(given, "tests")
    with contextlib.closing(Journal(settings.home)) as journal:
        return agree(journal, settings)


def accept(home: Path, kind: Kind, body: bytes) -> int:
    """Put an entry into the journal, a millisecond after any other; return when it was received."""
    before_ms = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 <= before_ms:
        pass
    with contextlib.closing(Journal(home)) as journal:
        seq = journal.append(kind, body, "edge")
        return journal.read(seq - 1, limit=1)[0].received_ms


def model_of(records: list[ProvenanceRecord], did: str) -> set[str]:
    """The files from which or to which the parents lead, by hand."""
    parents = {(one.did, one.parent_did) for one in records if one.parent_did}
    journey = set()
    for way in (parents, {(parent, child) for child, parent in parents}):
        found = {did}
        while more := {to for of, to in way if of in found} - found:
            found |= more
        journey |= found
    return journey


@given_settings(max_examples=4)
@given(
    batches=st.lists(st.lists(RECORD, min_size=1, max_size=4), min_size=1, max_size=4),
    filed=st.integers(0, 4),
    did=st.sampled_from(DIDS[:2]),
)
def test_what_was_known_then_is_what_the_entries_received_by_then_say(
    batches: list[list[dict[str, object]]], filed: int, did: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = home_at(Path(folder))
        told: list[tuple[int, list[ProvenanceRecord]]] = []
        for number, records in enumerate(batches, 1):
            body = json.dumps(records).encode()
            received_ms = accept(settings.home, Kind.PROVENANCE, body)
            told.append((received_ms, decode_records(body, system_name="edge")))
            if number == filed:
                flush(settings)
        everything = [one for _, some in told for one in some]
        assume(any(did in {one.did, one.parent_did} for one in everything))
        now = Lineage.open(settings.home).trace(did)
        with contextlib.closing(Journal(settings.home)) as journal:
            for at_ms in [told[0][0] - 1, *(at_ms for at_ms, _ in told)]:
                known = merge_all(one for received_ms, some in told if received_ms <= at_ms for one in some)
                if not any(did in {one.did, one.parent_did} for one in known):
                    with pytest.raises(NotFoundError, match=did):
                        trace_as_of(now, at_ms, settings.root, journal, settings)
                    continue
                then = trace_as_of(now, at_ms, settings.root, journal, settings)
                assert then.files.keys() == model_of(known, did)
                for file in then.files.values():
                    assert {*map(repr, file.records)} == {repr(one) for one in known if one.did == file.did}
            assert then == now


@pytest.fixture
def two_times(tmp_path: Path) -> tuple[Settings, int, int]:
    """A home with a file and, received later, a part of it; and the two times."""
    settings = home_at(tmp_path)
    common = {"finalState": "COMPLETE", "created": START_MS, "completed": START_MS, "systemName": "edge"}
    year = {"did": "year", "dataSource": "in", "filename": "year.csv", **common}
    part = {**year, "did": "part", "parentDid": "year", "filename": "part.csv"}
    first_ms, second_ms = (
        accept(settings.home, Kind.PROVENANCE, json.dumps([one]).encode()) for one in (year, part)
    )
    flush(settings)
    return settings, first_ms, second_ms


def known(settings: Settings, at_ms: int) -> set[str]:
    return set(Lineage.open(settings.home).trace("year", as_of_ms=at_ms).files)


def test_the_archive_tells_it_when_the_journal_has_dropped_the_entries(
    two_times: tuple[Settings, int, int],
) -> None:
    settings, first_ms, second_ms = two_times
    with contextlib.closing(Journal(settings.home)) as journal:
        assert journal.prune(journal.last_seq(), second_ms + 60_000) == 2
    assert known(settings, first_ms) == {"year"}
    assert known(settings, second_ms) == {"year", "part"}
    assert set(Lineage.open(settings.root).trace("year", as_of_ms=first_ms).files) == {"year"}


def test_it_is_not_told_when_the_entries_are_gone(two_times: tuple[Settings, int, int]) -> None:
    settings, first_ms, second_ms = two_times
    for file in (settings.root / "events").glob("*/*/*.parquet"):
        file.unlink()
    assert known(settings, first_ms) == {"year"}
    with contextlib.closing(Journal(settings.home)) as journal:
        journal.prune(1, second_ms + 60_000)
    with pytest.raises(EntriesGoneError, match="1 entry of its time is neither in the journal nor in the"):
        known(settings, second_ms)


def test_a_run_without_the_facet_was_known_when_it_had_ended(tmp_path: Path) -> None:
    settings = home_at(tmp_path)
    sink = [{"namespace": "file", "name": "out.csv"}]
    began_ms = accept(settings.home, Kind.OPENLINEAGE, event(RUN, "START", 0))
    ended_ms = accept(settings.home, Kind.OPENLINEAGE, event(RUN, "COMPLETE", 1_000, outputs=sink))
    flush(settings)
    lineage = Lineage.open(settings.home)
    with pytest.raises(NotFoundError, match="nothing was known of the file"):
        lineage.trace(RUN, as_of_ms=began_ms)
    journey: Journey = lineage.trace(RUN, as_of_ms=ended_ms)
    assert journey == lineage.trace(RUN)
    assert [one.data_sink for one in journey.file.records] == ["file/out.csv"]
