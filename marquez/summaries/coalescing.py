"""Coalescing: when the events of files go into summaries, and why none of them is lost or counted twice.

- The events that a summary stands for are counted and noted as processed in one commit, except the first:
  that one holds the cursor, and stands for the summary, until the backend has it.
- A summary is sent only once it is durable and closed, so that it is the same if it is sent again. A new
runner
  closes the summaries that the last one left open.
- The journal remembers which events were coalesced as long as it holds them, and also the summaries that
  were sent in their place.
- A START that is older than the last summary may belong to a file whose end went into that summary. Sent on
its
  own, it would leave a run open for ever. So it goes into a summary too, even if the backend keeps up by now.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.transport.config import DETAIL_BACKLOG, Detail

from ..acks import PAGE_ENTRIES
from ..graph import WINDOW_MS
from .summary import Summary

if TYPE_CHECKING:
    from waybill.transport.journal import Entry, Journal

    from ..graph import FileEvent, Flow
    from ..links import CollectorLinks
    from ..state_batch import StateBatch

BEHIND_MS: Final = 60_000
"""The backend is behind if the next event to read is older than this and more events wait than it accepts in
about a minute. Age alone would be true after each outage, and when the backend is first set, even for a
backlog that is gone in a minute. Its files would then be missing from the backend's page for ever."""

OPEN_MAX: Final = 1_000
"""How many summaries are open at a time; names that differ for each file close them early."""

_WAITING_PREFIX: Final = "summary:"
_SENT_PREFIX: Final = "summed:"
_COALESCED_PREFIX: Final = "coalesced:"
_UNTIL: Final = "coalesced-until"
_SHARES: Final = 256


class SummaryRules(msgspec.Struct, frozen=True, kw_only=True):
    """When the events of files go into summaries.

    Attributes:
        detail: ``every``: never; ``summary``: always; ``auto``: while the backend is behind.
        public_url: the collector's address for users; None: where it listens.
        backlog: how many events must wait before ``auto`` considers the backend to be behind.
    """

    detail: Detail = "every"
    public_url: str | None = None
    backlog: int = DETAIL_BACKLOG


class CoalescedEntries:
    """Which entries were coalesced: bits in pages, each a row that is tied to the page's last entry."""

    def __init__(self, journal: Journal, projection: str) -> None:
        self._journal = journal
        self._projection = projection
        self._pages: dict[int, bytearray] = {}
        self._changed: set[int] = set()

    def __contains__(self, seq: int) -> bool:
        number, place = divmod(seq, PAGE_ENTRIES)
        return bool(self._page(number)[place >> 3] >> (place & 7) & 1)

    def add(self, seq: int) -> None:
        """Note that an entry was coalesced."""
        number, place = divmod(seq, PAGE_ENTRIES)
        self._page(number)[place >> 3] |= 1 << (place & 7)
        self._changed.add(number)

    def save(self, batch: StateBatch) -> None:
        """Add the changes since the last call to a batch."""
        for number in self._changed:
            last = (number + 1) * PAGE_ENTRIES - 1
            batch.put(_key(_COALESCED_PREFIX, number), bytes(self._pages[number]), seq=last)
        self._changed.clear()

    def _page(self, number: int) -> bytearray:
        page = self._pages.get(number)
        if page is None:
            row = self._journal.state_get(self._projection, _key(_COALESCED_PREFIX, number))
            # Entries come in journal order: only pages that are not stored have to stay in memory.
            self._pages = {one: self._pages[one] for one in self._changed}
            page = self._pages[number] = bytearray(row or bytes(PAGE_ENTRIES // 8))
        return page


class Coalescing:
    """The summaries of one backend."""

    def __init__(self, journal: Journal, projection: str, rules: SummaryRules, links: CollectorLinks) -> None:
        self._journal = journal
        self._links = links
        self._projection = projection
        self._rules = rules
        self._is_behind = False
        self._open: dict[Flow, Summary] = {}
        self._changed: set[int] = set()
        self._coalesced = CoalescedEntries(journal, projection)
        self._until_ms = int(journal.state_get(projection, _UNTIL) or 0)
        rows = journal.state(projection, _WAITING_PREFIX)
        stored = (msgspec.json.decode(row, type=Summary) for row in rows.values())
        self._closed = {summary.seq: summary for summary in stored}
        self._to_send = sorted(self._closed)
        for summary in self._closed.values():
            self._link(summary)

    @property
    def active(self) -> bool:
        """Whether the events of files go into summaries now."""
        return self._rules.detail == "summary" or self._is_behind

    @property
    def at_work(self) -> bool:
        """Whether `caught_up` may have something to do."""
        return self.active or bool(self._open)

    def takes(self, event: FileEvent) -> bool:
        """Whether an event goes into a summary if its run is not known to the backend."""
        return self.active or (event.state is None and event.completed_ms < self._until_ms)

    def consider(self, after: int) -> None:
        """Check whether the backend keeps up; `after` is the last entry that was read."""
        may_change = self._rules.detail == "auto" and not self._is_behind
        if may_change and self._journal.last_seq() - after > self._rules.backlog:
            (oldest,) = self._journal.read(after, limit=1)
            self._is_behind = self._journal.clock.now_ms() - oldest.received_ms > BEHIND_MS

    def caught_up(self) -> None:
        """Note that all waiting events have been read, and close the summaries that are due."""
        at_ms = self._journal.clock.now_ms()
        for summary in list(self._open.values()):
            # If the clock was set back, it must not wait until the old time is reached again.
            if self._is_behind or not 0 <= at_ms - summary.first_ms < WINDOW_MS:
                self._close(summary)
        self._is_behind = False

    def add(self, entry: Entry, event: FileEvent) -> bool:
        """Take in an event; returns whether it stands for its summary from now on."""
        self._coalesced.add(entry.seq)
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
            received_ms = entry.received_ms
            summary = Summary(event.flow, entry.seq, event.parent_run_id, received_ms, received_ms)
            self._open[event.flow] = summary
        summary.add(event, entry.received_ms)
        self._changed.add(summary.seq)
        return is_first

    def close_all(self) -> None:
        """Close the open summaries, so that they can be sent."""
        for summary in list(self._open.values()):
            self._close(summary)

    def _close(self, summary: Summary) -> None:
        del self._open[summary.flow]
        self._link(summary)
        self._closed[summary.seq] = summary
        self._to_send.append(summary.seq)

    def _link(self, summary: Summary) -> None:
        """Link a closed summary to its records, once, so that it is the same if it is sent again."""
        if summary.link is None:
            summary.link = self._links.of_summary(summary.seq, self._projection) if summary.states else ""
            self._changed.add(summary.seq)

    def wait_s(self) -> float | None:
        """In how many seconds `caught_up` has something to do; None: not before something new is read."""
        if not self._open:
            return None
        first_ms = min(summary.first_ms for summary in self._open.values())
        return max(first_ms + WINDOW_MS - self._journal.clock.now_ms(), 0) / 1000

    def save(self, batch: StateBatch) -> None:
        """Add the changes to the batch that notes the events as processed."""
        summaries = self._closed | {one.seq: one for one in self._open.values()}
        for seq in self._changed:
            batch.put(f"{_WAITING_PREFIX}{seq}", msgspec.json.encode(summaries[seq]))
        if self._changed:
            batch.put(_UNTIL, str(self._until_ms).encode())
        self._changed.clear()
        self._coalesced.save(batch)

    def to_send(self) -> Iterator[tuple[int, str]]:
        """The entries and the runs of the summaries that were closed since the last call and are durable."""
        while self._to_send:
            seq = self._to_send.pop(0)
            yield seq, f"run {self._closed[seq].run_id(self._journal.node)}"

    def event(self, seq: int) -> bytes | None:
        """The event of the summary that an entry stands for; None if it stands for none."""
        if seq in self._closed:
            return self._closed[seq].event(self._journal.node)
        return summary_event(self._journal, self._projection, seq) if seq in self._coalesced else None

    def is_summary(self, seq: int) -> bool:
        """Whether an entry stands for a summary without a final response from the backend."""
        return seq in self._closed

    def settle(self, seq: int, batch: StateBatch) -> None:
        """Note the backend's final response; the sent event stays known."""
        event = self._closed.pop(seq).event(self._journal.node)
        batch.put(_key(_SENT_PREFIX, seq), event, seq=seq)
        batch.delete(f"{_WAITING_PREFIX}{seq}")


def summary_event(journal: Journal, projection: str, seq: int) -> bytes | None:
    """The event of the summary that an entry stood for; None if it stood for none."""
    return journal.state_get(projection, _key(_SENT_PREFIX, seq))


def waiting_summary(journal: Journal, projection: str, seq: int) -> Summary | None:
    """The summary that an entry stands for, while the backend has not answered; None if there is none."""
    row = journal.state_get(projection, f"{_WAITING_PREFIX}{seq}")
    return None if row is None else msgspec.json.decode(row, type=Summary)


def _key(prefix: str, number: int) -> str:
    return f"{prefix}{number % _SHARES}:{number}"
