"""Collisions: one did, two stories. The record rule merges the records, and the stored events keep both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from waybill.facets import (
    UNREADABLE,
    ProvenanceRecord,
    decode_records,
    facet_records,
    is_collision,
    record_key,
)
from waybill.transport.journal import Kind

from .explanation import mentioning, run_event

if TYPE_CHECKING:
    from waybill.facets.merge_rule import RecordKey

    from ..sources import Source, Stored


class Collision(msgspec.Struct, frozen=True):
    """Two records of one key that name different files, sources or parents, and where each is stored."""

    did: str
    stories: tuple[ProvenanceRecord, ProvenanceRecord]
    places: tuple[str, str]


def find_collisions(
    dids: Collection[str], sources: Sequence[Source], *, system_name: str
) -> Iterator[Collision]:
    """Find the collisions among the stored records of these files: each story, with the first that differs.

    All sources are read once; nothing is read if there are no dids. Records that only follow from a run's
    events together are no stories: a run has one did.

    Raises:
        SourceError: a source is damaged or cannot be reached.
        OSError: one cannot be read.
    """
    told: defaultdict[RecordKey, list[tuple[ProvenanceRecord, str]]] = defaultdict(list)
    for place, stored in mentioning(dids, sources) if dids else ():
        for record in _records_in(stored, stored.system_name or system_name):
            stories = told[record_key(record)]
            if record.did not in dids or any(record == one for one, _ in stories):
                continue
            for one, where in stories:
                if is_collision(one, record):
                    yield Collision(record.did, (one, record), (where, place))
                    break
            stories.append((record, place))


def _records_in(stored: Stored, system_name: str) -> Sequence[ProvenanceRecord]:
    try:
        if stored.kind is Kind.PROVENANCE:
            return decode_records(stored.body, system_name=system_name)
        event = run_event(stored.body)
        return () if event is None else facet_records(event, system_name=system_name)
    except UNREADABLE:
        return ()
