"""The files of an input or of a producer, which events name.

Records have no room for them, so the correlation index keeps them.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import apsw
import msgspec

from waybill.exporter.query import TooManyError
from waybill.transport import NotFoundError, SettingsError
from waybill.transport.errors import JournalError, reason_of

from .correlation import DAY_MS, CorrelationIndex, sightings_after

if TYPE_CHECKING:
    from waybill.exporter import Query
    from waybill.transport import Journal, Settings

FILES_MAX: Final = 100_000
"""A question is about at most so many files of an input or of a producer."""


def by_dids(query: Query, journal: Journal, settings: Settings) -> Query:
    """The query with the dids of the files that have its input and its producer, instead of these two.

    Args:
        query: the conditions; without an input and a producer, the answer is the same.
        journal: of the home that is asked.
        settings: the home's agreed settings.

    Raises:
        SettingsError: `correlation_enabled` is off.
        NotFoundError: the home has no index yet.
        TooManyError: more than `FILES_MAX` files have that input, or that producer.
        JournalError: the journal or the index cannot be read.
    """
    name, producer = query.input_dataset, query.producer
    if name is None and producer is None:
        return query
    if not settings.correlation_enabled:
        what = "inputs and producers are in the correlation index; turn it on, and run `waybill flush`"
        raise SettingsError("correlation_enabled", False, settings.origins["correlation_enabled"], what)  # noqa: FBT003
    try:
        index = CorrelationIndex.open(journal.home)
        if index is None:
            raise NotFoundError("there is no correlation index yet; run `waybill flush`, which makes it")
        with contextlib.closing(index):
            wanted = _files_of(query, index, journal)
    except apsw.Error as error:
        what = f"the correlation index cannot be read ({reason_of(error)})"
        raise JournalError(f"{what}; check the disk, then delete it and run `waybill flush`") from None
    if query.dids is not None:
        wanted &= query.dids
    return msgspec.structs.replace(query, input_dataset=None, producer=None, dids=frozenset(wanted))


def _files_of(query: Query, index: CorrelationIndex, journal: Journal) -> set[str]:
    name, producer = query.input_dataset, query.producer
    # A record ends with an event of its file, so files whose last event was earlier have none.
    first_day = 0 if query.since_ms is None else query.since_ms // DAY_MS
    place = index.place
    reading, produced = set[str](), set[str]()
    if name is not None:
        reading = index.with_input(name, first_day=first_day, count=FILES_MAX + 1)
    if producer is not None:
        produced = index.with_producer(producer, first_day=first_day, count=FILES_MAX + 1)
    for seen in sightings_after(journal, *place):
        if name is not None and seen.details.has_input(name):
            reading.add(seen.did)
        if producer is not None and producer in seen.details.producers:
            produced.add(seen.did)
    for what, found in (("this input", reading), ("this producer", produced)):
        if len(found) > FILES_MAX:
            raise TooManyError(f"more than {FILES_MAX:,} files have {what}; ask for a later time, with since")
    return produced if name is None else reading if producer is None else reading & produced
