"""Comparing the runs of delivered events with those that the backend shows.

Marquez keeps runs and jobs apart from events, so a run can be gone, or in a wrong state, while all its events
are there. The runs of each job are read page by page, the latest first. Pages can leave runs out, because the
order is not unique. So a run that no page has is requested by its id.

The known runs are in a temporary database, which is on disk if it is large.
"""

from __future__ import annotations

import re
import sqlite3
from typing import TYPE_CHECKING, Final

from waybill.facets import SEVERITY, EventType

from ..graph import Node, full_name
from ..links import namespace_in_marquez
from ..subject import subject_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from waybill.facets import RunEvent

    from .event_reader import EventReader

_STATES: Final = {EventType.COMPLETE: "COMPLETED", EventType.ABORT: "ABORTED", EventType.FAIL: "FAILED"}
_RANKS: Final = {state: max(SEVERITY.values()) - SEVERITY[kind] for kind, state in _STATES.items()}
"""How much a final state counts; of several ends the highest is shown."""
_OPEN: Final = -1

_IS_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch

_TABLE: Final = """
CREATE TABLE runs (
    run TEXT PRIMARY KEY, namespace TEXT, job TEXT, first INTEGER, is_own INTEGER, rank INTEGER, last INTEGER
) WITHOUT ROWID
"""
_ADD: Final = """
INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE
SET is_own = excluded.is_own, rank = excluded.rank, last = excluded.last
WHERE (excluded.is_own, excluded.rank, excluded.last) > (is_own, rank, last)
"""


class KnownRuns:
    """The runs of delivered events: for each the first event, and the one that decides its state."""

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
        self._rows.execute(_ADD, (event.run.runId, *_job_of(event), seq, is_own, rank, seq))

    def lacking(self, reader: EventReader) -> Iterator[int]:
        """The events to send again.

        These are the first and the deciding one of each run that is gone, and only the latter where the
        backend has a lesser state.
        """
        select = "SELECT namespace, job FROM runs GROUP BY namespace, job ORDER BY min(first)"
        self._rows.execute("CREATE INDEX by_job ON runs (namespace, job)")
        for job in self._rows.execute(select).fetchall():
            yield from self._lacking_of(Node(*job), reader)

    def _lacking_of(self, job: Node, reader: EventReader) -> Iterator[int]:
        where = "FROM runs WHERE namespace = ? AND job = ?"
        (waiting,) = self._rows.execute(f"SELECT count(*) {where}", job).fetchone()
        pages = reader.runs(job)
        if pages is not None:
            for page in pages:
                for run_id, state in page:
                    if seen := self._take(run_id):
                        waiting -= 1
                        yield from _lesser(state, *seen[1:])
                if not waiting:
                    return
        while rows := self._rows.execute(f"SELECT run {where} LIMIT 1000", job).fetchall():
            for (run_id,) in rows:
                first, is_own, rank, last = self._take(run_id) or (0, 0, 0, 0)
                shown = None if pages is None else reader.state_of(run_id)
                yield from {first, last} if shown is None else _lesser(shown, is_own, rank, last)

    def _take(self, run_id: str) -> tuple[int, int, int, int] | None:
        delete = "DELETE FROM runs WHERE run = ? RETURNING first, is_own, rank, last"
        row: tuple[int, int, int, int] | None = self._rows.execute(delete, (run_id,)).fetchone()
        return row


def is_lesser(state: str, known: str) -> bool:
    """Whether a state at the backend must give way to the known final state."""
    return _RANKS.get(state, _OPEN) < _RANKS[known]


def _lesser(state: str, is_own: int, rank: int, last: int) -> Iterable[int]:
    """The deciding event, if the backend's state must give way to its state.

    An inferred end only closes a run: whatever else ended it counts for more.
    """
    shown = _RANKS.get(state, _OPEN)
    return [last] if shown < (rank if is_own else min(rank, 0)) else []


def _job_of(event: RunEvent) -> Node:
    """The job of an event as Marquez names it."""
    facets, name = event.run.facets, event.job.name
    if facets is not None and facets.parent is not None:
        name = full_name(name, facets.parent.job.name)
    return Node(namespace_in_marquez(event.job.namespace), name)
