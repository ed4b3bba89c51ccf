"""The members of a summary: the ends of files that it counts, found again among the stored entries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from waybill.facets import RunEvent, decode_event

from ..graph import WINDOW_MS, file_event_of
from .coalescing import CoalescedEntries, summary_event, waiting_summary

if TYPE_CHECKING:
    from waybill.transport.journal import Entry, Journal

    from ..graph import Flow


class Members:
    """The members of the summary that an entry stands for, as far as the journal still knows it.

    A summary holds the coalesced events of its flow from its first one on, as many as it counts. Once the
    journal has deleted its first entry, it no longer knows that. The members are then all files of the flow
    that ended within the longest time that a summary covers.

    Attributes:
        exact: whether the journal knows which entries belong to the summary.
        lacking: how many of its events `of` has not found yet.
    """

    def __init__(self, journal: Journal, backend: str, seq: int) -> None:
        self._seq = seq
        self._coalesced = CoalescedEntries(journal, backend)
        events = _events_of(journal, backend, seq)
        first = journal.first()
        self._is_pruned = first is not None and seq < first.seq
        self.exact = events is not None
        self.lacking = events or 0

    @property
    def possible(self) -> bool:
        """Whether there is or may have been such a summary."""
        return self.exact or self._is_pruned

    def of(self, batches: Iterable[list[Entry]]) -> Iterator[list[Entry]]:
        """The members among entries, which are in order from the first one of the summary on."""
        flow: Flow | None = None
        first_ms = 0
        for batch in filter(None, batches):
            if flow is None:
                event = file_event_of(batch[0].event)
                if batch[0].seq != self._seq or event is None:
                    return
                flow, first_ms = event.flow, batch[0].received_ms
            in_time = [entry for entry in batch if entry.received_ms - first_ms < WINDOW_MS]
            yield [entry for entry in in_time if self._is_counted_end(entry, flow)]
            if len(in_time) < len(batch) or (self.exact and not self.lacking):
                return

    def _is_counted_end(self, entry: Entry, flow: Flow) -> bool:
        """Whether an entry is a member and the end of a path; members are counted off."""
        event = file_event_of(entry.event)
        if event is None or event.flow != flow:
            return False
        if self.exact:
            if not self.lacking or entry.seq not in self._coalesced:
                return False
            self.lacking -= 1
        return event.state is not None


def _events_of(journal: Journal, backend: str, seq: int) -> int | None:
    """How many events a summary stands for; None if the journal knows no such summary."""
    waiting = waiting_summary(journal, backend, seq)
    if waiting is not None:
        return waiting.events
    sent = summary_event(journal, backend, seq)
    if sent is None:
        return None
    event = decode_event(sent)
    facets = event.run.facets if isinstance(event, RunEvent) else None
    summary = None if facets is None else facets.read_summary()
    return 0 if summary is None else summary.events
