"""Delivery: the projection that sends every OpenLineage event of the journal to the backend.

Each step sends at most one event. Its answer is stored before the next is sent, so that a restart repeats an
event only if its answer was never seen. What goes when is decided in `waybill.marquez.schedule`.
"""

from __future__ import annotations

import logging
import time
from random import Random
from typing import TYPE_CHECKING, Final

from waybill.marquez.answer import Answer, explain
from waybill.marquez.client import Backend
from waybill.marquez.ledger import ROW_PREFIX, Ledger
from waybill.marquez.letters import PROJECTION, DeadLetter, DeadLetterBox, dead_letters
from waybill.marquez.order import order_key
from waybill.marquez.schedule import Outcome, Schedule
from waybill.marquez.window import Window
from waybill.transport.journal import Entry, Kind
from waybill.transport.projection import Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from waybill.transport.journal import Journal
    from waybill.transport.settings import Settings

log = logging.getLogger("waybill.marquez")

_READ_MAX_BYTES: Final = 8 * 2**20
_STUCK_LOOK_EVERY_S: Final = 1.0


def open_delivery(journal: Journal, settings: Settings) -> Delivery | None:
    """The projection ``marquez`` of the entry-point group ``waybill.projections``; None without a backend."""
    if settings.marquez_url is None:
        return None
    return Delivery(journal, Backend(settings.marquez_url, settings.marquez_api_key))


class Delivery:
    """Delivers in order per run, at least once, and exactly once where every answer was seen.

    Args:
        journal: where the events are.
        backend: where they go; closed with the delivery.
        clock: seconds that never go back; back-off is measured on it.
        rng: where the back-off's jitter is drawn from.
    """

    name = PROJECTION
    stores = False

    def __init__(
        self,
        journal: Journal,
        backend: Backend,
        *,
        clock: Callable[[], float] = time.monotonic,
        rng: Random | None = None,
    ) -> None:
        self._journal = journal
        self._backend = backend
        self._clock = clock
        self._ledger = Ledger(journal.cursor(PROJECTION), journal.state(PROJECTION, ROW_PREFIX))
        self._cursor_stored = self._ledger.cursor
        self._window = Window(self._ledger)
        self._schedule = Schedule(self._window, rng or Random())  # noqa: S311 - jitter keeps no secret
        self._box = DeadLetterBox(dead_letters(journal))
        self._put: dict[str, bytes] = {}
        self._delete: set[str] = set()

    @property
    def held(self) -> int:
        """How many waiting events are in memory."""
        return self._window.held

    def step(self) -> Step:
        """Look at new entries where there is room, then send one event if one may go."""
        self._store()  # what a failing disk kept from being stored comes before anything new
        applied = self._look()
        seq = self._schedule.next(self._clock())
        if seq is not None:
            applied += self._send(seq)
        self._store()
        return self._rest() if not applied else Step(applied=applied, problem=self._outage())

    def pending(self) -> int:
        """How many entries are not dealt with."""
        return self._journal.last_seq() - self._ledger.cursor - self._ledger.above

    def finish(self) -> None:
        """Nothing is left untidy between two steps."""

    def close(self) -> None:
        """Close the connection to the backend."""
        self._backend.close()

    def _look(self) -> int:
        room = self._window.room()
        if not room:
            return 0
        entries = self._journal.read(self._window.read_after(), limit=room, max_bytes=_READ_MAX_BYTES)
        for entry in entries:
            is_event = entry.kind is Kind.OPENLINEAGE
            self._window.look_at(entry.seq, order_key(entry.body, entry.seq) if is_event else None)
        return len(entries)

    def _send(self, seq: int) -> bool:
        """Send one event; tells whether it is dealt with."""
        try:
            entry = next(iter(self._journal.read(seq - 1, limit=1)), None)
            answer = self._backend.deliver(entry.body) if entry is not None and entry.seq == seq else None
        except BaseException:
            # A journal that cannot be read, or a stop in the middle: the event is still to be sent.
            self._schedule.give_back(seq, self._clock())
            raise
        if entry is None or answer is None:
            log.warning("entry %d left the journal before it was delivered", seq)
            self._schedule.forget(seq)
            return True
        key, tries = self._window.key_of(seq), self._schedule.tries(seq) + 1
        outcome = self._schedule.answered(seq, answer, self._clock())
        if outcome is Outcome.PARKED:
            self._park(entry, key, tries, answer)
        return outcome is not Outcome.LATER

    def _park(self, entry: Entry, key: str, tries: int, answer: Answer) -> None:
        log.warning("%s refused entry %d (%s): %s", self._backend.shown_url, entry.seq, key, answer.heard)
        letter = DeadLetter(
            seq=entry.seq,
            key=key,
            received_ms=entry.received_ms,
            parked_ms=time.time_ns() // 1_000_000,
            tries=tries,
            status=answer.status,
            words=answer.words,
            size_bytes=len(entry.body),
        )
        put, gone = self._box.add(letter, entry.body)
        self._note(put, gone)

    def _note(self, put: dict[str, bytes], gone: list[str]) -> None:
        for key in gone:
            self._put.pop(key, None)
        self._put |= put
        self._delete = (self._delete | set(gone)) - put.keys()

    def _store(self) -> None:
        self._note(*self._ledger.take_changes())
        cursor = self._ledger.cursor
        if self._put or self._delete or cursor != self._cursor_stored:
            self._journal.commit(PROJECTION, cursor=cursor, put=self._put, delete=self._delete)
            self._cursor_stored = cursor
            self._put, self._delete = {}, set()

    def _rest(self) -> Step:
        wait_s = self._schedule.wait_s(self._clock())
        if (problem := self._outage()) is not None or not wait_s:
            return Step(retry_s=wait_s, problem=problem)
        if (stuck := self._schedule.stuck) is None:
            return Step(retry_s=wait_s)
        # The runner does not wake for new entries while there is a problem, and this one is not theirs.
        problem = explain(stuck, self._backend.shown_url)
        return Step(retry_s=min(wait_s, _STUCK_LOOK_EVERY_S), problem=problem)

    def _outage(self) -> str | None:
        outage = self._schedule.outage
        return None if outage is None else explain(outage, self._backend.shown_url)
