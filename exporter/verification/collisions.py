"""Collisions: one did, two stories. The record rule merges the records, and the stored events keep both."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from waybill.facets import (
    UNREADABLE,
    ProvenanceRecord,
    decode_records,
    facet_records,
    is_collision,
    record_key,
)
from waybill.transport.journal import Kind

from .explanation import run_event

if TYPE_CHECKING:
    from waybill.facets.merge_rule import RecordKey

    from ..sources import Source, Stored


class Collision(msgspec.Struct, frozen=True):
    """Two records of one key that name different files, sources or parents, and where each is stored."""

    did: str
    stories: tuple[ProvenanceRecord, ProvenanceRecord]
    places: tuple[str, str]


def find_collisions(sources: Sequence[Source], *, system_name: str) -> Iterator[Collision]:
    """Find the collisions among the stored records: each story of a key, with the first that differs.

    All sources are read once to look for keys with several stories, and once more if there are any. Records
    that only follow from a run's events together are no stories: a run has one did.

    Raises:
        SourceError: a source is damaged or cannot be reached.
        OSError: one cannot be read.
    """
    suspects = _keys_with_several_stories(sources, system_name)
    told: defaultdict[RecordKey, list[tuple[ProvenanceRecord, str]]] = defaultdict(list)
    for place, record in _all_records(sources, system_name) if suspects else ():
        key = record_key(record)
        stories = told[key] if hash(key) in suspects else []
        if hash(key) not in suspects or any(record == known for known, _ in stories):
            continue
        for known, where in stories:
            if is_collision(known, record):
                yield Collision(record.did, (known, record), (where, place))
                break
        stories.append((record, place))


def _keys_with_several_stories(sources: Sequence[Source], system_name: str) -> set[int]:
    """The hashes of the keys of which records name different files, sources or parents: 16 bytes a record."""
    keys, stories = array("q"), array("q")
    for _, record in _all_records(sources, system_name):
        keys.append(hash(record_key(record)))
        stories.append(hash((record.filename, record.data_source, record.parent_did)))
    columns = [
        pa.Array.from_buffers(pa.int64(), len(one), [None, pa.py_buffer(one)]) for one in (keys, stories)
    ]
    counts = (
        pa.table(columns, names=["key", "story"]).group_by("key").aggregate([("story", "count_distinct")])
    )
    return set(counts.filter(pc.greater(counts["story_count_distinct"], 1))["key"].to_pylist())


def _all_records(sources: Sequence[Source], system_name: str) -> Iterator[tuple[str, ProvenanceRecord]]:
    for source in sources:
        for part in source.parts():
            for batch in source.read(part):
                for stored in batch:
                    for record in _records_in(stored, stored.system_name or system_name):
                        yield source.place(part, stored.at), record


def _records_in(stored: Stored, system_name: str) -> Sequence[ProvenanceRecord]:
    try:
        if stored.kind is Kind.PROVENANCE:
            return decode_records(stored.body, system_name=system_name)
        event = run_event(stored.body)
        return () if event is None else facet_records(event, system_name=system_name)
    except UNREADABLE:
        return ()
