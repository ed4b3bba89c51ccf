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

import msgspec

from waybill.marquez.acks import ROW_PREFIX, Acks
from waybill.marquez.backend import Answer, Verdict, explain, setting_of
from waybill.marquez.delivery.dead_letter_box import (
    OWED_PREFIX,
    DeadLetter,
    DeadLetterBox,
    dead_letter_body,
    dead_letters,
)
from waybill.marquez.delivery.pending import PendingEvents
from waybill.marquez.delivery.run_states import End, RunStates, note_end, note_open
from waybill.marquez.delivery.schedule import Schedule, SendOutcome
from waybill.marquez.envelope import Envelope, Subject, envelope_of
from waybill.marquez.graph import JOURNEY_PREFIX, JobGraph, file_event_of, path_of, paths_of_records, row_key
from waybill.marquez.state_batch import StateBatch
from waybill.marquez.summaries import CoalescedEntries, Coalescing, SummaryRules, now_ms
from waybill.transport.config import MARQUEZ
from waybill.transport.journal import SYNC_EVERY_S, Entry, Kind
from waybill.transport.runner import Progress, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from waybill.marquez.backend import Target
    from waybill.marquez.graph import FileEvent, Node
    from waybill.transport.journal import Journal

log = logging.getLogger("waybill.marquez")

CONNECTIONS: Final = 8

_COUNTERS: Final = "figures"
_VIEWED: Final = "held"
"""State key of the last event that came into view, which may have been on its way when a runner died."""
_READ_MAX_BYTES: Final = 8 * 2**20
_STUCK_LOOK_EVERY_S: Final = 1.0
_ANSWER_POLL_S: Final = 0.05


class Counters(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one backend's events, counted over all runners.

    Attributes:
        delivered: answers that took an event; an event that is sent again counts again.
        failed: attempts that came to nothing and were, or will be, repeated.
        refused: answers that made an event a dead letter.
        coalesced: events that summaries stand for.
        summaries: those of `delivered` that were summaries.
    """

    delivered: int = 0
    failed: int = 0
    refused: int = 0
    coalesced: int = 0
    summaries: int = 0

    def row(self) -> bytes:
        """The counts as they are stored."""
        return msgspec.json.encode(self)


def counters_of(journal: Journal, backend: str = MARQUEZ) -> Counters | None:
    """The counts of one backend, by the name of its projection; None before anything was sent there."""
    row = journal.state_get(backend, _COUNTERS)
    return None if row is None else msgspec.json.decode(row, type=Counters)


class Delivery:
    """Delivers in order per run, at least once, and exactly once where every answer was seen.

    Args:
        backend: closed with the delivery.
        name: the projection's own, under which its cursor and its state are kept.
        connections: how many events may be on their way at a time.
        draws: whether the backend is also told of the flows that files pass; see `waybill.marquez.graph`.
        clock: seconds that never go back; back-off is measured on it.
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
        summaries: SummaryRules = SummaryRules(),  # noqa: B008 - immutable
        clock: Callable[[], float] = time.monotonic,
        rng: Random | None = None,
    ) -> None:
        self.name = name
        self._journal = journal
        self._backend = backend
        self._draws = draws
        self._clock = clock
        self._batch = StateBatch(journal, name)
        self._acks = Acks(journal.cursor(name), journal.state(name, ROW_PREFIX))
        self._pending = PendingEvents(self._acks)
        self._schedule = Schedule(self._pending, rng or Random())  # noqa: S311 - jitter keeps no secret
        self._dead_letters = DeadLetterBox(dead_letters(journal, name))
        self._run_states = RunStates(journal, name)
        self._coalescing = Coalescing(journal, name, summaries)
        self._counters = counters_of(journal, name) or Counters()
        self._viewed = self._viewed_before = int(journal.state_get(name, _VIEWED) or 0)
        self._owed: set[int] = set()
        self._senders = ThreadPoolExecutor(connections, thread_name_prefix=f"waybill-{name}-sender")
        self._in_flight: dict[Future[Answer], Entry] = {}
        # A few more than there are connections, so that none waits for this thread to hand it its next event.
        self._in_flight_max = connections + connections // 4
        self._job_graph = JobGraph(journal.state(name, JOURNEY_PREFIX) if draws else {})
        for node in self._job_graph.untold():
            self._tell(node)

    @property
    def held(self) -> int:
        """How many waiting events are in memory."""
        return self._pending.held

    def step(self) -> Step:
        """Look at new entries where there is room, send what may go, and take in what was answered."""
        self._store()  # what a failing disk did not take comes before anything new
        if self._schedule.wants_key(self._clock()) and self._backend.renewed():
            self._schedule.circuit.resume(self._clock())
        looked = self._look()
        self._store()  # that an event may be on its way is stored before it is
        applied = looked + self._hand_out()
        # While every connection is busy there is nothing else to do; otherwise an event may come that can go.
        is_busy = len(self._in_flight) == self._in_flight_max and not self._coalescing.active
        applied += self._take_in(None if is_busy else 0.0 if applied else _ANSWER_POLL_S)
        # No connection idles while the disk writes: what goes out now is of other runs.
        applied += self._hand_out()
        self._store()
        return self._rest() if not applied else self._step(self._schedule.outage, applied=applied)

    def pending(self) -> int:
        """How many entries are not dealt with, or are to be sent again."""
        return self._journal.last_seq() - self._acks.cursor - self._acks.above + len(self._owed)

    def finish(self) -> None:
        """Wait for the answers to what is on its way, so that none of it is repeated."""
        while self._in_flight:
            self._take_in(None)
            self._store()
        self._store()
        self._journal.sync()

    def close(self) -> None:
        """Close the connections to the backend."""
        self._senders.shutdown()
        self._backend.close()

    # -- sending ---------------------------------------------------------------------------------------------

    def _look(self) -> int:
        """Take entries into view where there is room; returns how many."""
        self._coalescing.consider(self._pending.read_after())
        room = self._pending.room(ahead=self._coalescing.active)
        # What is to be sent again goes first, so that a flush waits for it too.
        if not room or any(entry.seq in self._owed for entry in self._in_flight.values()):
            return 0
        if admitted := self._admit_owed():
            return admitted
        after = self._pending.read_after()
        entries = self._journal.feed(self.name, after, limit=room, max_bytes=_READ_MAX_BYTES)
        envelopes = [
            envelope_of(entry.body) if entry.kind is Kind.OPENLINEAGE else Envelope() for entry in entries
        ]
        events = [file_event_of(envelope) for envelope in envelopes]
        takes = self._coalescing.takes
        begun = self._run_states.open_of(f"run {one.run_id}" for one in events if one and takes(one))
        coalesced = 0
        for entry, envelope, event in zip(entries, envelopes, events, strict=True):
            if self._draws:
                self._learn(entry, envelope, event)
            if self._coalesce(entry, event, begun):
                coalesced += 1
            else:
                self._view(entry, envelope)
        if coalesced:
            self._count(coalesced=coalesced)
        if self._coalescing.at_work and (not entries or entries[-1].seq == self._journal.last_seq()):
            self._coalescing.caught_up()
        return len(entries)

    def _view(self, entry: Entry, envelope: Envelope) -> None:
        is_event = entry.kind is Kind.OPENLINEAGE
        self._pending.look_at(entry.seq, envelope.subject(entry.seq) if is_event else None)
        if is_event and entry.seq > self._viewed:
            self._viewed = entry.seq
            self._batch.put(_VIEWED, str(entry.seq).encode())

    def _coalesce(self, entry: Entry, event: FileEvent | None, begun: Collection[str]) -> bool:
        """Let an event go into a summary, if it is a file's and of no run that the backend has begun."""
        if entry.is_flush:
            self._coalescing.close_all()
        # An event up to there may have been on its way when the last runner was killed: the backend may know
        # its run.
        if event is None or entry.seq <= self._viewed_before or not self._coalescing.takes(event):
            return False
        key = f"run {event.run_id}"
        if key in begun or not self._pending.may_pass(entry.seq, key):
            return False
        if self._coalescing.add(entry, event):
            self._pending.hold_back(entry.seq)
        else:
            self._pending.look_at(entry.seq, None)
        return True

    def _learn(self, entry: Entry, envelope: Envelope, event: FileEvent | None) -> None:
        """Have the backend told of the flows that an entry is the first to name."""
        for path in paths_of_records(entry) if event is None else [path_of(event, envelope)]:
            for node in self._job_graph.learn(path, now_ms()):
                self._tell(node)

    def _tell(self, node: Node) -> None:
        self._batch.put(row_key(node), self._job_graph.row(node))
        self._owe(self._job_graph.number(node), Subject(f"job {node.namespace} {node.name}"))

    def _admit_owed(self) -> int:
        """Take into view what is to be sent again; returns how many events."""
        owed = [key.removeprefix(OWED_PREFIX) for key in self._journal.state(self.name, OWED_PREFIX)]
        jobs = {one for one in owed if one.startswith(JOURNEY_PREFIX)}
        self._batch.delete(*(f"{OWED_PREFIX}{job}" for job in jobs))
        for node in self._job_graph.forgotten(jobs) if jobs else ():
            self._tell(node)
        new = sorted({int(one) for one in owed if one not in jobs} - self._owed)
        for seq in new:
            entry = self._entry(seq)
            if entry is None:
                self._no_longer_owed(seq)
            else:
                self._owe(seq, envelope_of(entry.body).subject(seq))
        return len(new) + len(jobs)

    def _owe(self, seq: int, subject: Subject) -> None:
        self._owed.add(seq)
        self._pending.admit(seq, subject)

    def _no_longer_owed(self, seq: int) -> None:
        self._owed.discard(seq)
        self._batch.delete(f"{OWED_PREFIX}{seq}")

    def _entry(self, seq: int) -> Entry | None:
        """An event from the journal, or from its dead letter where the journal has been pruned."""
        is_job = seq < 0
        body = self._job_graph.event(self._job_graph.node(seq)) if is_job else self._coalescing.event(seq)
        if body is None:
            entry = next(iter(self._journal.feed(self.name, seq - 1, limit=1)), None)
            if entry is not None and entry.seq == seq and entry.kind is Kind.OPENLINEAGE:
                return entry
            body = dead_letter_body(self._journal, seq, self.name)
        return None if body is None else Entry(seq, 0, Kind.OPENLINEAGE, "", body)

    def _hand_out(self) -> int:
        """Give the connections events; returns how many events turned out to have been pruned."""
        pruned = 0
        while len(self._in_flight) < self._in_flight_max and not (
            self._in_flight and self._schedule.probes(self._clock())
        ):
            seq = self._schedule.next(self._clock())
            if seq is None:
                break
            try:
                entry = self._entry(seq)
                if entry is not None:
                    self._in_flight[self._senders.submit(self._backend.deliver, entry.body)] = entry
            except BaseException:
                # A journal that cannot be read, or a stop in the middle: the event is still to be sent.
                self._schedule.give_back(seq, self._clock())
                raise
            if entry is None:
                log.warning(
                    "entry %d left the journal, or was damaged in it, before %s had it", seq, self.name
                )
                self._schedule.settle(seq)
                self._no_longer_owed(seq)
                pruned += 1
        return pruned

    # -- answers ---------------------------------------------------------------------------------------------

    def _take_in(self, timeout_s: float | None) -> int:
        """Wait for an answer and take in all that have come; returns how many events are dealt with."""
        if not self._in_flight:
            return 0
        answered, _ = wait(self._in_flight, timeout_s, FIRST_COMPLETED)
        # In the order of the journal, so that what a test sees does not depend on that of a set.
        futures = sorted(answered, key=lambda future: self._in_flight[future].seq)
        return sum(self._settle(self._in_flight.pop(future), future) for future in futures)

    def _settle(self, entry: Entry, future: Future[Answer]) -> bool:
        """Take in the answer to one event; returns whether the event is dealt with."""
        seq = entry.seq
        try:
            answer = future.result()
        except Exception:
            self._schedule.give_back(seq, self._clock())
            raise
        subject, tries = self._pending.subject_of(seq), self._schedule.tries(seq) + 1
        outcome = self._schedule.answered(seq, answer, self._clock())
        if outcome is SendOutcome.LATER:
            self._count(failed=1)
            return False
        if seq < 0:
            self._note_told(seq, answer)
            return True
        is_delivered = outcome is SendOutcome.DELIVERED
        is_summary = self._coalescing.is_summary(seq)
        self._count(delivered=is_delivered, refused=not is_delivered, summaries=is_summary and is_delivered)
        if is_summary:
            self._coalescing.settle(seq, self._batch)
        if seq in self._owed:
            self._no_longer_owed(seq)
            self._dead_letters.remove(seq, self._batch)
        if is_delivered:
            self._note_run(seq, subject)
        else:
            self._park(entry, subject.key, tries, answer)
        return True

    def _note_told(self, number: int, answer: Answer) -> None:
        """Note that the backend was told of a job; if it refuses that, no run is affected."""
        node = self._job_graph.node(number)
        if answer.verdict is not Verdict.DELIVERED:
            log.warning("%s does not draw %s: %s", self._backend.shown_url, node.name, answer.shown)
        self._owed.discard(number)
        if self._job_graph.told(node, now_ms()):
            self._batch.put(row_key(node), self._job_graph.row(node))
        else:
            self._tell(node)

    def _note_run(self, seq: int, subject: Subject) -> None:
        """Note how a run stands now; after a late event its terminal event is sent again."""
        if not subject.is_run:
            return
        end, delivered = self._run_states.end_of(subject.key), End(not subject.inferred, seq)
        if subject.ends and (end is None or end < delivered):
            note_end(self._batch, subject.key, delivered)
        elif end is None:
            note_open(self._batch, subject.key, seq)
        elif end.seq != seq:
            self._batch.put(f"{OWED_PREFIX}{end.seq}", b"")
            inferred = not end.is_own
            self._owe(end.seq, Subject(subject.key, is_run=True, ends=True, inferred=inferred))

    def _park(self, entry: Entry, key: str, tries: int, answer: Answer) -> None:
        log.warning("%s refused entry %d (%s): %s", self._backend.shown_url, entry.seq, key, answer.shown)
        parked_ms = now_ms()
        letter = DeadLetter(
            seq=entry.seq,
            key=key,
            received_ms=entry.received_ms or parked_ms,
            parked_ms=parked_ms,
            tries=tries,
            status=answer.status,
            words=answer.words,
            size_bytes=len(entry.body),
        )
        if self._dead_letters.is_full_for(letter):
            self._store()  # somebody may have dropped some
            self._dead_letters = DeadLetterBox(dead_letters(self._journal, self.name))
        self._dead_letters.add(letter, entry.body, self._batch)

    def _count(self, **more: int) -> None:
        sums = {name: getattr(self._counters, name) + count for name, count in more.items()}
        self._counters = msgspec.structs.replace(self._counters, **sums)
        self._batch.put(_COUNTERS, self._counters.row())

    # -- state and steps -------------------------------------------------------------------------------------

    def _store(self) -> None:
        self._acks.save(self._batch)
        self._coalescing.save(self._batch)
        self._batch.commit(self._acks.cursor)
        self._pending.stored()
        for seq, key in self._coalescing.to_send():
            self._pending.admit(seq, Subject(key, is_run=True, ends=True))

    def _rest(self) -> Step:
        """The outcome of a step that had nothing to do."""
        sync_s = self._journal.sync(SYNC_EVERY_S)
        waits_s = (self._schedule.wait_s(self._clock()), self._coalescing.wait_s(), sync_s)
        wait_s = 0.0 if self._in_flight else min((one for one in waits_s if one is not None), default=None)
        outage, stuck = self._schedule.outage, self._schedule.stuck
        if outage is not None or stuck is None or wait_s is None:
            return self._step(outage, retry_s=wait_s)
        # The runner does not wake for new entries while there is a problem, and this one is not about them.
        return self._step(stuck, retry_s=min(wait_s, _STUCK_LOOK_EVERY_S))

    def _step(self, trouble: Answer | None, *, applied: int = 0, retry_s: float | None = None) -> Step:
        if trouble is None:
            return Step(applied=applied, retry_s=retry_s)
        to_correct, has_stopped = self._backend.to_correct, self._schedule.circuit.stopped
        problem = explain(trouble, self._backend.shown_url, to_correct=to_correct, has_stopped=has_stopped)
        setting = setting_of(trouble, to_correct)
        return Step(applied=applied, retry_s=retry_s, problem=problem, to_correct=setting)


def progress_of(journal: Journal, projection: str, seq: int) -> Progress | None:
    """What became of an entry in a delivery, as `waybill.transport.runner.progress_of` asks it."""
    if dead_letter_body(journal, seq, projection) is not None:
        return Progress.REFUSED
    if seq in CoalescedEntries(journal, projection):
        return Progress.COALESCED
    is_done = seq in Acks(journal.cursor(projection), journal.state(projection, ROW_PREFIX))
    return Progress.DONE if is_done else None
