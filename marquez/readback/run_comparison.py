"""Comparing the runs of delivered events with those that the backend shows.

Marquez keeps runs and jobs apart from events, so a run can be gone, or in a wrong state, while all its events
are there. The runs of each job are read page by page, the latest first. Pages can leave runs out, because the
order is not unique. So a run that no page has is requested by its id.

The known runs are in a temporary database, which is on disk if it is large.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from waybill.facets import SEVERITY, Attempts, EventType, RunEvent, decode_event, parse_instant_us
from waybill.facets.flows import FlowNode

from ..graph import full_name, start_of
from ..links import namespace_in_marquez
from ..subject import subject_of

if TYPE_CHECKING:
    from .event_reader import EventReader, ShownRun

_STATES: Final = {EventType.COMPLETE: "COMPLETED", EventType.ABORT: "ABORTED", EventType.FAIL: "FAILED"}
_RANKS: Final = {state: max(SEVERITY.values()) - SEVERITY[kind] for kind, state in _STATES.items()}
"""How much a final state counts; of several ends the highest is shown."""
_OPEN: Final = -1

_IS_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch

_TABLE: Final = """
CREATE TABLE runs (
    run TEXT PRIMARY KEY, namespace TEXT, job TEXT,
    first INTEGER, started INTEGER, is_own INTEGER, rank INTEGER, last INTEGER, ended INTEGER,
    begun INTEGER
) WITHOUT ROWID
"""
_ADD: Final = """
INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0) ON CONFLICT DO UPDATE
SET is_own = excluded.is_own, rank = excluded.rank, last = excluded.last, ended = excluded.ended
WHERE (excluded.is_own, excluded.rank, excluded.last) > (is_own, rank, last)
"""
_ATTEMPTS: Final = "SELECT begun, begun, iif(rank > -1, ended, 0) FROM runs WHERE run = ?"
_BEGUN: Final = "UPDATE runs SET begun = ? WHERE run = ?"
_BEGIN_AGAIN: Final = "UPDATE runs SET is_own = FALSE, rank = -1, last = ?, ended = ? WHERE run = ?"
_BEGIN: Final = "UPDATE runs SET first = ?, started = ? WHERE run = ? AND (started IS NULL OR started > ?)"


class _Known(NamedTuple):
    """What the events of a run say: by whose sequence numbers, and their times in epoch microseconds."""

    first: int
    started_us: int | None
    is_own: bool
    rank: int
    last: int
    ended_us: int

    def to_send_again(self, shown: ShownRun) -> set[int]:
        """The events without which the backend shows another state, a later start or an earlier end.

        An inferred end only closes a run: whatever else ended it counts for more.
        """
        rank = _RANKS.get(shown.state, _OPEN)
        is_lesser = rank < (self.rank if self.is_own else min(self.rank, 0))
        if not is_lesser and (rank != self.rank or rank == _OPEN):
            return set()
        if self.started_us is not None and is_later(shown.started_us, self.started_us):
            return {self.first, self.last}
        is_early = shown.ended_us is None or is_later(self.ended_us, shown.ended_us)
        return {self.last} if is_lesser or is_early else set()


class KnownRuns:
    """The runs of delivered events: for each the one that says when it began, and the one that ends it."""

    def __init__(self) -> None:
        self._rows = sqlite3.connect("")
        self._rows.execute(_TABLE)

    def close(self) -> None:
        """Delete them."""
        self._rows.close()

    def add(self, seq: int, event: RunEvent, body: bytes) -> None:
        """Take in a delivered event; the backend has no page for a run whose id is no UUID with hyphens."""
        if not _IS_UUID(event.run.runId) or event.run.runId.encode() not in body.lower():
            return
        subject = subject_of(event, seq)
        rank = _OPEN if subject.severity is None else max(SEVERITY.values()) - subject.severity
        is_own = rank > _OPEN and not subject.inferred
        time_us = parse_instant_us(event.eventTime)
        row = (event.run.runId, *_job_of(event), seq, None, is_own, rank, seq, time_us)
        self._rows.execute(_ADD, row)
        if event.eventType is EventType.START:
            before = Attempts(*self._rows.execute(_ATTEMPTS, (event.run.runId,)).fetchone())
            attempts = before.take(event.eventType, time_us)
            self._rows.execute(_BEGUN, (attempts.first_us, event.run.runId))
            if before.ended_us and not attempts.has_ended:
                self._rows.execute(_BEGIN_AGAIN, (seq, time_us, event.run.runId))
        start = start_of(body)
        began = decode_event(start) if start is not None else event if subject.severity is None else None
        if isinstance(began, RunEvent):
            started_us = parse_instant_us(began.eventTime)
            self._rows.execute(_BEGIN, (seq, started_us, event.run.runId, started_us))

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
                    yield from {known.first, known.last} if run is None else known.to_send_again(run)

    def _take(self, run_id: str) -> _Known | None:
        delete = "DELETE FROM runs WHERE run = ? RETURNING first, started, is_own, rank, last, ended"
        row = self._rows.execute(delete, (run_id,)).fetchone()
        return row and _Known(*row)


def is_lesser(state: str, known: str) -> bool:
    """Whether a state at the backend must give way to the known final state."""
    return _RANKS.get(state, _OPEN) < _RANKS[known]


def is_later(time_us: int | None, known_us: int) -> bool:
    """Whether a time is not there, or is later than another by more than the backend's rounding."""
    return time_us is None or time_us > known_us + 1


def _job_of(event: RunEvent) -> FlowNode:
    """The job of an event as Marquez names it."""
    facets, name = event.run.facets, event.job.name
    if facets is not None and facets.parent is not None:
        name = full_name(name, facets.parent.job.name)
    return FlowNode(namespace_in_marquez(event.job.namespace), name)
