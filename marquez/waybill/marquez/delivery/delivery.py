"""Delivery: the projection that sends every OpenLineage event of the journal to one backend.

Each step hands out as many events as there are connections and takes in the answers that have come. An
answer is stored before the next event of the same run is sent, so that a restart repeats an event only if its
answer was never seen, and no two in another order. `schedule` decides what goes when.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from random import Random
from typing import TYPE_CHECKING, Final

from waybill.marquez.acks import ROW_PREFIX, Acks
from waybill.marquez.backend import Answer, Verdict, explain, setting_of
from waybill.marquez.delivery.counters import FIGURES, Counters, counters_of
from waybill.marquez.delivery.dead_letter_box import (
    OWED_PREFIX,
    DeadLetterBox,
    dead_letter_body,
    dead_letters,
    letter_about,
    rows_of,
)
from waybill.marquez.delivery.pending import PendingEvents
from waybill.marquez.delivery.run_states import RunStates
from waybill.marquez.delivery.schedule import Schedule, SendOutcome
from waybill.marquez.graph import JOURNEY_PREFIX, JobGraph, file_event_of, path_of, paths_of_records
from waybill.marquez.ordering import subject_of
from waybill.marquez.summaries import Coalescing, now_ms
from waybill.transport.config import DETAIL_BACKLOG, MARQUEZ
from waybill.transport.journal import SYNC_EVERY_S, Entry, Kind
from waybill.transport.runner import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from waybill.marquez.backend import Target
    from waybill.marquez.graph import FileEvent, Node
    from waybill.transport.config import Detail
    from waybill.transport.journal import Journal

log = logging.getLogger("waybill.marquez")

CONNECTIONS: Final = 8

_HELD_UPTO: Final = "held"
_FLUSH: Final = b"flush"
_READ_MAX_BYTES: Final = 8 * 2**20
_STUCK_LOOK_EVERY_S: Final = 1.0
_ANSWER_POLL_S: Final = 0.05


class Delivery:
    """Delivers in order per run, at least once, and exactly once where every answer was seen.

    Args:
        journal: where the events are.
        backend: where they go; closed with the delivery.
        name: the projection's own, under which its cursor and its state are kept.
        connections: how many events may be on their way at a time.
        draws: whether the backend is also told of the flows that files pass; see `waybill.marquez.graph`.
        detail: whether each file has its own run; see `waybill.marquez.summaries.coalescing`.
        collector_url: where summaries point to for the records.
        backlog: how many events have to wait for the detail ``auto`` to make summaries.
        clock: seconds that never go back; back-off is measured on it.
        rng: where the back-off's jitter is drawn from.
    """

    stores = False

    def __init__(
        self,
        journal: Journal,
        backend: Target,
        *,
        name: str = MARQUEZ,
        connections: int = CONNECTIONS,
        draws: bool = False,
        detail: Detail = "every",
        collector_url: str = "",
        backlog: int = DETAIL_BACKLOG,
        clock: Callable[[], float] = time.monotonic,
        rng: Random | None = None,
    ) -> None:
        self.name = name
        self._journal = journal
        self._backend = backend
        # A few more than there are connections, so that none waits for this thread to give it its next.
        self._handed_out_max = connections + connections // 4
        self._clock = clock
        self._ledger = Acks(journal.cursor(name), journal.state(name, ROW_PREFIX))
        self._cursor_stored = self._ledger.cursor
        self._window = PendingEvents(self._ledger)
        self._schedule = Schedule(self._window, rng or Random())  # noqa: S311 - jitter keeps no secret
        self._box = DeadLetterBox(dead_letters(journal, name))
        self._endings = RunStates(journal, name)
        self._coalescing = Coalescing(journal, name, detail, collector_url, backlog)
        self._figures = counters_of(journal, name) or Counters()
        self._figures_stored = self._figures
        self._held_upto = int(journal.state_get(name, _HELD_UPTO) or 0)
        self._sent_before = self._held_upto
        self._owed: set[int] = set()
        self._senders = ThreadPoolExecutor(connections, thread_name_prefix=f"waybill-{name}-sender")
        self._on_the_way: dict[Future[Answer], Entry] = {}
        self._put: dict[str, bytes] = {}
        self._delete: set[str] = set()
        self._draws = draws
        self._journey = JobGraph(journal.state(name, JOURNEY_PREFIX) if draws else {})
        for node in self._journey.untold():
            self._tell(node)

    @property
    def held(self) -> int:
        """How many waiting events are in memory."""
        return self._window.held

    def step(self) -> Step:
        """Look at new entries where there is room, send what may go, and take in what was answered."""
        self._store()  # what a failing disk kept from being stored comes before anything new
        if self._schedule.wants_key(self._clock()) and self._backend.renewed():
            self._schedule.resume(self._clock())
        looked = self._look()
        self._store()  # that an event may be on its way is known before it is
        applied = looked + self._hand_out()
        # While every connection is busy there is nothing else to do; else something may come that can go.
        busy = len(self._on_the_way) == self._handed_out_max and not self._coalescing.active
        applied += self._take_in(None if busy else 0.0 if applied else _ANSWER_POLL_S)
        # No connection idles while the disk writes: what goes out now is of other runs.
        applied += self._hand_out()
        self._store()
        return self._rest() if not applied else self._step(self._schedule.outage, applied=applied)

    def pending(self) -> int:
        """How many entries are not dealt with, or are to go once more."""
        return self._journal.last_seq() - self._ledger.cursor - self._ledger.above + len(self._owed)

    def finish(self) -> None:
        """Hear the answers to what is on its way, so that none of it is repeated."""
        while self._on_the_way:
            self._take_in(None)
            self._store()
        self._store()
        self._journal.sync()

    def close(self) -> None:
        """Close the connections to the backend."""
        self._senders.shutdown()
        self._backend.close()

    # -- what goes out ---------------------------------------------------------------------------------------

    def _look(self) -> int:
        self._coalescing.consider(self._window.read_after())
        room = self._window.room(ahead=self._coalescing.active)
        # What goes once more goes first, so that whoever asked for it and for a flush has it answered then.
        if not room or any(entry.seq in self._owed for entry in self._on_the_way.values()):
            return 0
        if admitted := self._admit_owed():
            return admitted
        after = self._window.read_after()
        entries = self._journal.read(after, limit=room, max_bytes=_READ_MAX_BYTES)
        coalesced, takes = 0, self._coalescing.takes
        events = [file_event_of(one.body) if one.kind is Kind.OPENLINEAGE else None for one in entries]
        begun = self._endings.open_of(f"run {one.run_id}" for one in events if one and takes(one))
        for entry, event in zip(entries, events, strict=True):
            self._learn(entry, event)
            if self._coalesce(entry, event, begun):
                coalesced += 1
            else:
                is_event = entry.kind is Kind.OPENLINEAGE
                self._view(entry.seq, subject_of(entry.body, entry.seq).key if is_event else None)
        self._figures = self._figures.plus(coalesced=coalesced)
        if self._coalescing.at_work and (not entries or entries[-1].seq == self._journal.last_seq()):
            self._coalescing.caught_up()
        return len(entries)

    def _view(self, seq: int, key: str | None) -> None:
        self._window.look_at(seq, key)
        if key is not None and seq > self._held_upto:
            self._held_upto = seq
            self._put[_HELD_UPTO] = str(seq).encode()

    def _coalesce(self, entry: Entry, event: FileEvent | None, begun: Collection[str]) -> bool:
        """Let an event go into a summary, if it is a file's and of no run that the backend has begun."""
        if entry.kind is Kind.MARK and entry.body == _FLUSH:
            self._coalescing.close_all()
        # What may have been on its way when the last runner was killed: the backend may know of the run.
        if event is None or entry.seq <= self._sent_before or not self._coalescing.takes(event):
            return False
        key = f"run {event.run_id}"
        if key in begun or not self._window.may_pass(entry.seq, key):
            return False
        if self._coalescing.add(entry, event):
            self._window.set_aside(entry.seq)
        else:
            self._window.look_at(entry.seq, None)
        return True

    def _admit_owed(self) -> int:
        """Take into view what is to go once more; tells how many that were."""
        owed = [key.removeprefix(OWED_PREFIX) for key in self._journal.state(self.name, OWED_PREFIX)]
        jobs = {one for one in owed if one.startswith(JOURNEY_PREFIX)}
        self._note({}, [f"{OWED_PREFIX}{job}" for job in jobs])
        for node in self._journey.forgotten(jobs) if jobs else ():
            self._tell(node)
        new = sorted({int(one) for one in owed if one not in jobs} - self._owed)
        for seq in new:
            entry = self._entry(seq)
            if entry is None:
                self._no_longer_owed(seq)
            else:
                self._owe(seq, subject_of(entry.body, seq).key)
        return len(new) + len(jobs)

    def _learn(self, entry: Entry, event: FileEvent | None) -> None:
        """See to it that the backend hears of the flows that an entry is the first to speak of."""
        if not self._draws:
            return
        for path in paths_of_records(entry) if event is None else [path_of(event, entry.body)]:
            for node in self._journey.learn(path, now_ms()):
                self._tell(node)

    def _tell(self, node: Node) -> None:
        self._note(self._journey.row(node), ())
        self._owe(self._journey.number(node), f"job {node.namespace} {node.name}")

    def _owe(self, seq: int, key: str) -> None:
        self._owed.add(seq)
        self._window.admit(seq, key)

    def _no_longer_owed(self, seq: int) -> None:
        self._owed.discard(seq)
        self._note({}, [f"{OWED_PREFIX}{seq}"])

    def _entry(self, seq: int) -> Entry | None:
        """An event from the journal, or from its dead letter where the journal let go of it."""
        made = self._journey.event(self._journey.node(seq)) if seq < 0 else self._coalescing.event(seq)
        if made is not None:
            return Entry(seq, 0, Kind.OPENLINEAGE, "", made)
        entry = next(iter(self._journal.read(seq - 1, limit=1)), None)
        if entry is not None and entry.seq == seq:
            return entry
        body = dead_letter_body(self._journal, seq, self.name)
        return None if body is None else Entry(seq, 0, Kind.OPENLINEAGE, "", body)

    def _hand_out(self) -> int:
        """Give the connections events; tells how many events turned out to be gone."""
        gone = 0
        while len(self._on_the_way) < self._handed_out_max and not (
            self._on_the_way and self._schedule.probes(self._clock())
        ):
            seq = self._schedule.next(self._clock())
            if seq is None:
                break
            try:
                entry = self._entry(seq)
                if entry is not None:
                    self._on_the_way[self._senders.submit(self._backend.deliver, entry.body)] = entry
            except BaseException:
                # A journal that cannot be read, or a stop in the middle: the event is still to be sent.
                self._schedule.give_back(seq, self._clock())
                raise
            if entry is None:
                log.warning("entry %d left the journal before %s had it", seq, self.name)
                self._schedule.forget(seq)
                self._no_longer_owed(seq)
                gone += 1
        return gone

    # -- what comes back -------------------------------------------------------------------------------------

    def _take_in(self, timeout_s: float | None) -> int:
        """Wait for an answer and take in all that have come; tells how many events are dealt with."""
        if not self._on_the_way:
            return 0
        answered, _ = wait(self._on_the_way, timeout_s, FIRST_COMPLETED)
        # In the order of the journal, so that what a test sees does not hang on that of a set.
        futures = sorted(answered, key=lambda future: self._on_the_way[future].seq)
        return sum(self._heard(self._on_the_way.pop(future), future) for future in futures)

    def _heard(self, entry: Entry, future: Future[Answer]) -> bool:
        """Take in the answer to one event; tells whether the event is dealt with."""
        try:
            answer = future.result()
        except Exception:
            self._schedule.give_back(entry.seq, self._clock())
            raise
        key, tries = self._window.key_of(entry.seq), self._schedule.tries(entry.seq) + 1
        outcome = self._schedule.answered(entry.seq, answer, self._clock())
        if outcome is SendOutcome.LATER:
            self._figures = self._figures.plus(failed=1)
            return False
        if entry.seq < 0:
            self._told(entry.seq, answer)
            return True
        is_delivered = outcome is SendOutcome.DELIVERED
        self._figures = self._figures.plus(delivered=int(is_delivered), refused=int(not is_delivered))
        if self._coalescing.is_summary(entry.seq):
            self._figures = self._figures.plus(summaries=int(is_delivered))
            self._note(*self._coalescing.settle(entry.seq))
        if entry.seq in self._owed:
            self._no_longer_owed(entry.seq)
            self._box.forget(entry.seq)
            self._note({}, rows_of(entry.seq))
        if outcome is SendOutcome.PARKED:
            self._park(entry, key, tries, answer)
        else:
            self._see_to_the_end(entry, key)
        return True

    def _told(self, number: int, answer: Answer) -> None:
        """Note that the backend was told of a flow; if it refuses that, no run is the worse for it."""
        node = self._journey.node(number)
        if answer.verdict is not Verdict.DELIVERED:
            log.warning("%s does not draw %s: %s", self._backend.shown_url, node.name, answer.heard)
        self._owed.discard(number)
        if self._journey.told(node, now_ms()):
            self._note(self._journey.row(node), ())
        else:
            self._tell(node)

    def _see_to_the_end(self, entry: Entry, key: str) -> None:
        """See to it that the last event of a finished run that the backend gets is its terminal one."""
        subject = subject_of(entry.body, entry.seq)
        if not subject.is_run:
            return
        end = self._endings.of(key)
        if subject.ends and (end is None or end < entry.seq):
            self._note(*self._endings.note(key, entry.seq))
        elif end is None:
            self._note(*self._endings.note_open(key, entry.seq))
        elif end != entry.seq:
            self._note({f"{OWED_PREFIX}{end}": b""}, ())
            self._owe(end, key)

    def _park(self, entry: Entry, key: str, tries: int, answer: Answer) -> None:
        log.warning("%s refused entry %d (%s): %s", self._backend.shown_url, entry.seq, key, answer.heard)
        letter = letter_about(entry, key, tries, answer, now_ms())
        if self._box.is_full(letter):
            # Somebody may have dropped some.
            self._store()
            self._box = DeadLetterBox(dead_letters(self._journal, self.name))
        self._note(*self._box.add(letter, entry.body))

    # -- what is kept ----------------------------------------------------------------------------------------

    def _note(self, put: Mapping[str, bytes], gone: Iterable[str]) -> None:
        for key in gone:
            self._put.pop(key, None)
            self._delete.add(key)
        self._put |= put
        self._delete -= put.keys()

    def _store(self) -> None:
        self._note(*self._ledger.take_changes())
        self._note(*self._coalescing.take_changes())
        if self._figures != self._figures_stored:
            self._put[FIGURES] = self._figures.row()
        cursor = self._ledger.cursor
        if self._put or self._delete or cursor != self._cursor_stored:
            self._journal.commit(self.name, cursor=cursor, put=self._put, delete=self._delete, durable=False)
            self._cursor_stored = cursor
            self._put, self._delete = {}, set()
            self._figures_stored = self._figures
        self._window.stored()
        for seq, key in self._coalescing.to_send():
            self._window.admit(seq, key)

    def _rest(self) -> Step:
        """What to say of a step that came to nothing."""
        sync_s = self._journal.sync(SYNC_EVERY_S)
        waits_s = (self._schedule.wait_s(self._clock()), self._coalescing.wait_s(), sync_s)
        wait_s = 0.0 if self._on_the_way else min((one for one in waits_s if one is not None), default=None)
        outage, stuck = self._schedule.outage, self._schedule.stuck
        if outage is not None or stuck is None or wait_s is None:
            return self._step(outage, retry_s=wait_s)
        # The runner does not wake for new entries while there is a problem, and this one is not theirs.
        return self._step(stuck, retry_s=min(wait_s, _STUCK_LOOK_EVERY_S))

    def _step(self, trouble: Answer | None, *, applied: int = 0, retry_s: float | None = None) -> Step:
        if trouble is None:
            return Step(applied=applied, retry_s=retry_s)
        to_correct, has_stopped = self._backend.to_correct, self._schedule.stopped
        problem = explain(trouble, self._backend.shown_url, to_correct=to_correct, has_stopped=has_stopped)
        setting = setting_of(trouble, to_correct)
        return Step(applied=applied, retry_s=retry_s, problem=problem, to_correct=setting)
