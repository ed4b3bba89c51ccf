"""Comparing the runs of delivered events with those that the backend shows.

Marquez keeps runs and jobs apart from events, so a run can be gone, or in a wrong state, while all its events
are there. The runs of each job are read page by page, the latest first. Pages can leave runs out, because the
order is not unique. So a run that no page has is requested by its id. What is right is what the delivery has
noted of each run.

The known runs are in a temporary database, which is on disk if it is large.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from waybill.facets import SEVERITY, EventType, RunEvent, decode_event, parse_instant_us
from waybill.facets.flows import FlowNode
from waybill.transport.journal import key_of_run

from ..graph import full_name, start_of
from ..links import namespace_in_marquez
from ..run_states import RunState, Start, run_states

if TYPE_CHECKING:
    from waybill.transport.journal import Journal

    from .event_reader import EventReader, ShownRun

_SEVERITIES: Final = {
    "COMPLETED": SEVERITY[EventType.COMPLETE],
    "ABORTED": SEVERITY[EventType.ABORT],
    "FAILED": SEVERITY[EventType.FAIL],
}
_OPEN: Final = max(SEVERITY.values()) + 1

_IS_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch

_TABLE: Final = """
CREATE TABLE runs (
    run TEXT PRIMARY KEY, namespace TEXT, job TEXT, first INTEGER, last INTEGER, began_us INTEGER
) WITHOUT ROWID
"""
_PUT: Final = "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET last = excluded.last"


class _Known(NamedTuple):
    """The numbers of a run's first and last event, and what the delivery has noted of it."""

    first: int
    last: int
    state: RunState
    is_end_held_back: bool

    @property
    def deciding(self) -> set[int]:
        """The events that say when it began and in which state it is."""
        start, end = self.state.start, self.state.end
        return {self.first if start is None else start.seq, self.last if end is None else end.seq}

    def to_send_again(self, shown: ShownRun) -> set[int]:
        """The events without which the backend shows another state, a later start or an earlier end.

        An inferred end only closes a run: whatever else ended it counts for more. An end that waits to be
        sent again brings the start with it.
        """
        start, end, severity = self.state.start, self.state.end, _SEVERITIES.get(shown.state, _OPEN)
        if end is None or self.is_end_held_back:
            return set()
        is_lesser = severity > (_OPEN - 1 if end.inferred else end.severity)
        if not is_lesser and severity != end.severity:
            return set()
        if start is not None and is_later(shown.started_us, start.time_us):
            return self.deciding
        is_early = shown.ended_us is None or is_later(end.time_us, shown.ended_us)
        return {end.seq} if is_lesser or is_early else set()


class KnownRuns:
    """The runs of delivered events: for each the one that says when it began, and the one that ends it.

    Args:
        held_back: the events that the backend refused, or that wait to be sent again.
    """

    def __init__(self, journal: Journal, backend: str, held_back: Collection[int]) -> None:
        self._held_back = held_back
        self._states = run_states(journal, backend)
        oldest = journal.first()
        self._oldest_seq = 0 if oldest is None else oldest.seq
        self._rows = sqlite3.connect("")
        self._rows.execute(_TABLE)

    def close(self) -> None:
        """Delete them."""
        self._rows.close()

    def add(self, seq: int, event: RunEvent, body: bytes) -> None:
        """Take in a delivered event; the backend has no page for a run whose id is no UUID with hyphens."""
        if not _IS_UUID(event.run.runId) or event.run.runId.encode() not in body.lower():
            return
        # Waybill's own runs have no START in the journal.
        begun = start_of(body)
        began = None if begun is None else decode_event(begun)
        began_us = parse_instant_us(began.eventTime) if isinstance(began, RunEvent) else None
        self._rows.execute(_PUT, (event.run.runId, *_job_of(event), seq, seq, began_us))

    def lacking(self, reader: EventReader) -> Iterator[int]:
        """The events to send again.

        These are the first and the deciding one of each run that is gone, or has a later start, and only the
        latter where the backend has a lesser state or an earlier end.
        """
        select = "SELECT namespace, job FROM runs GROUP BY namespace, job ORDER BY min(first)"
        self._rows.execute("CREATE INDEX by_job ON runs (namespace, job)")
        for job in self._rows.execute(select).fetchall():
            yield from self._lacking_of(FlowNode(*job), reader)

    def _lacking_of(self, job: FlowNode, reader: EventReader) -> Iterator[int]:
        where = "FROM runs WHERE namespace = ? AND job = ?"
        (waiting,) = self._rows.execute(f"SELECT count(*) {where}", job).fetchone()
        pages = reader.runs(job)
        if pages is not None:
            for page in pages:
                for shown in page:
                    if known := self._take(shown.id):
                        waiting -= 1
                        yield from known.to_send_again(shown)
                if not waiting:
                    return
        while rows := self._rows.execute(f"SELECT run {where} LIMIT 1000", job).fetchall():
            for (run_id,) in rows:
                known = self._take(run_id)
                run = None if pages is None else reader.run(run_id)
                if known is not None:
                    yield from known.deciding if run is None else known.to_send_again(run)

    def _take(self, run_id: str) -> _Known | None:
        delete = "DELETE FROM runs WHERE run = ? RETURNING first, last, began_us"
        row = self._rows.execute(delete, (run_id,)).fetchone()
        if row is None:
            return None
        (first, last, began_us), key = row, key_of_run(f"run {run_id}")
        state = self._states.of([key]).get(key, RunState())
        if began_us is not None:
            state = RunState(state.attempts, Start(began_us, first))
        elif state.start is not None and state.start.seq < self._oldest_seq:
            # The journal has deleted it, so it can neither be sent again nor be asked for.
            state = RunState(state.attempts)
        end = state.end
        return _Known(first, last, state, is_end_held_back=end is not None and end.seq in self._held_back)


def is_lesser(state: str, known: str) -> bool:
    """Whether a state at the backend must give way to the known final state."""
    return _SEVERITIES.get(state, _OPEN) > _SEVERITIES[known]


def is_later(time_us: int | None, known_us: int) -> bool:
    """Whether a time is not there, or is later than another by more than the backend's rounding."""
    return time_us is None or time_us > known_us + 1


def _job_of(event: RunEvent) -> FlowNode:
    """The job of an event as Marquez names it."""
    facets, name = event.run.facets, event.job.name
    if facets is not None and facets.parent is not None:
        name = full_name(name, facets.parent.job.name)
    return FlowNode(namespace_in_marquez(event.job.namespace), name)
