"""Coalescing: when the events of files go into summaries, and how none of them is lost or counted twice.

- The events that a summary stands for are counted and noted as dealt with in one commit, all but the first:
  that one keeps the cursor, and stands for the summary, until the backend has it.
- A summary is sent only after it is durable and closed, so that what is sent again is the same. A runner that
  starts closes what the last one left open.
- Which events were coalesced stays known for as long as the journal holds them, and so do the events that
  were sent in their place.
- A START that is older than the last summary may be of a file whose end that has: sent on its own, it would
  leave a run open for ever. It goes into a summary, too, whether or not the backend keeps up by now.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.marquez.summaries.coalesced import CoalescedEntries, share_of, stale_rows
from waybill.marquez.summaries.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from waybill.marquez.graph import FileEvent, Flow
    from waybill.transport.config import Detail
    from waybill.transport.journal import Entry, Journal

WINDOW_MS: Final = 60_000
"""The most time that a summary covers."""

BEHIND_MS: Final = 60_000
"""The backend does not keep up when the next event to read is older than this, and more wait than it takes in
about a minute. Age alone would say so after each outage, and when the backend is named for the first time: of
a backlog that is gone in a minute, and whose files would be missed on the backend's page for good."""

OPEN_MAX: Final = 1_000
"""How many summaries are open at a time; names that differ for each file close them early."""

WAITING_PREFIX: Final = "summary:"
SENT_PREFIX: Final = "summed:"
_UNTIL: Final = "coalesced-until"

_LOOK_EVERY_MS: Final = 1_000


class Coalescing:
    """The summaries of one backend.

    Args:
        journal: where the events are.
        projection: whose state holds the rows.
        detail: ``every``: there are none; ``summary``: of all files; ``auto``: while the backend is behind.
        collector_url: where summaries point to.
        backlog: how many events have to wait for ``auto`` to take the backend for being behind.
    """

    def __init__(
        self, journal: Journal, projection: str, detail: Detail, collector_url: str, backlog: int
    ) -> None:
        self._journal = journal
        self._projection = projection
        self._detail = detail
        self._collector_url = collector_url
        self._backlog = backlog
        self._behind = False
        self._looked_ms = 0
        self._open: dict[Flow, Summary] = {}
        self._changed: set[int] = set()
        self._marks = CoalescedEntries(journal, projection)
        self._until_ms = int(journal.state_get(projection, _UNTIL) or 0)
        rows = journal.state(projection, WAITING_PREFIX)
        self._closed = {
            one.seq: one for one in (msgspec.json.decode(row, type=Summary) for row in rows.values())
        }
        self._to_send = sorted(self._closed)

    @property
    def active(self) -> bool:
        """Whether the events of files go into summaries now."""
        return self._detail == "summary" or self._behind

    @property
    def at_work(self) -> bool:
        """Whether there may be something for `caught_up` to do."""
        return self.active or bool(self._open)

    def takes(self, event: FileEvent) -> bool:
        """Whether an event goes into a summary, if its run is not known to the backend."""
        return self.active or (event.state is None and event.completed_ms < self._until_ms)

    def consider(self, after: int) -> None:
        """See whether the backend keeps up.

        Args:
            after: the last entry that was read.
        """
        at_ms = now_ms()
        if self._detail == "auto" and not self._behind and not 0 <= at_ms - self._looked_ms < _LOOK_EVERY_MS:
            self._looked_ms = at_ms
            if self._journal.last_seq() - after > self._backlog:
                (oldest,) = self._journal.read(after, limit=1)
                self._behind = at_ms - oldest.received_ms > BEHIND_MS

    def caught_up(self) -> None:
        """Everything that waits was read."""
        at_ms = now_ms()
        for summary in list(self._open.values()):
            if self._behind or at_ms - summary.first_ms >= WINDOW_MS:
                self._close(summary)
        self._behind = False

    def add(self, entry: Entry, event: FileEvent) -> bool:
        """Take in an event; tells whether it is to stand for its summary."""
        self._marks.add(entry.seq)
        if self.active:
            self._until_ms = max(self._until_ms, entry.received_ms)
        summary = self._open.get(event.flow)
        if summary is not None and entry.received_ms - summary.first_ms >= WINDOW_MS:
            self._close(summary)
            summary = None
        is_first = summary is None
        if summary is None:
            if len(self._open) >= OPEN_MAX:
                self.close_all()
            summary = Summary(
                event.flow, entry.seq, event.parent_run_id, entry.received_ms, entry.received_ms
            )
            self._open[event.flow] = summary
        summary.add(event, entry.received_ms)
        self._changed.add(summary.seq)
        return is_first

    def close_all(self) -> None:
        """Nothing more goes into the summaries that are open."""
        for summary in list(self._open.values()):
            self._close(summary)

    def _close(self, summary: Summary) -> None:
        del self._open[summary.flow]
        self._closed[summary.seq] = summary
        self._to_send.append(summary.seq)

    def wait_s(self) -> float | None:
        """In how many seconds `caught_up` has something to do; None: when something new is read."""
        if not self._open:
            return None
        first_ms = min(summary.first_ms for summary in self._open.values())
        return max(first_ms + WINDOW_MS - now_ms(), 0) / 1000

    # -- what is kept ----------------------------------------------------------------------------------------

    def take_changes(self) -> tuple[dict[str, bytes], list[str]]:
        """The rows to write and the keys to delete, in the commit that notes the events as dealt with."""
        summaries = self._closed | {one.seq: one for one in self._open.values()}
        waiting = {f"{WAITING_PREFIX}{seq}": msgspec.json.encode(summaries[seq]) for seq in self._changed}
        if self._changed:
            waiting[_UNTIL] = str(self._until_ms).encode()
        self._changed.clear()
        marks, gone = self._marks.take_changes()
        return waiting | marks, gone

    def to_send(self) -> Iterator[tuple[int, str]]:
        """The summaries that were closed since the last call, and are durable: entry and run of each."""
        while self._to_send:
            seq = self._to_send.pop(0)
            yield seq, f"run {self._closed[seq].run_id(self._journal.node)}"

    # -- what is sent ----------------------------------------------------------------------------------------

    def event(self, seq: int) -> bytes | None:
        """The event of the summary that an entry stands for; None where it stands for none."""
        if seq in self._closed:
            return self._closed[seq].event(self._journal.node, self._collector_url)
        return summary_event(self._journal, self._projection, seq)

    def is_summary(self, seq: int) -> bool:
        """Whether an entry stands for a summary that the backend has not answered for good."""
        return seq in self._closed

    def settle(self, seq: int) -> tuple[dict[str, bytes], list[str]]:
        """The backend has answered for good.

        Returns:
            The rows to write and the keys to delete.
        """
        event = self._closed.pop(seq).event(self._journal.node, self._collector_url)
        stale = stale_rows(self._journal, self._projection, f"{SENT_PREFIX}{share_of(seq)}:")
        return {_sent_key(seq): event}, [f"{WAITING_PREFIX}{seq}", *stale]


def summary_event(journal: Journal, projection: str, seq: int) -> bytes | None:
    """The event of the summary that an entry stood for; None where it stood for none."""
    return journal.state_get(projection, _sent_key(seq))


def _sent_key(seq: int) -> str:
    return f"{SENT_PREFIX}{share_of(seq)}:{seq}"


def now_ms() -> int:
    """The time of day, epoch milliseconds."""
    return time.time_ns() // 1_000_000
