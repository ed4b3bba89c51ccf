"""Delivery: the projection that sends every OpenLineage event of the journal to one backend.

Each step sends as many events as there are connections and processes the responses that have arrived. A
response is stored before the next event of the same run is sent, so that a restart repeats an event only if
its response was never seen, and never changes the order. `schedule` decides which event is sent when.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from random import Random
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.facets import JobEvent, RunEvent
from waybill.facets.flows import paths_in_records
from waybill.facets.standard import JobNotes, job_notes_of
from waybill.transport.config import MARQUEZ
from waybill.transport.journal import Entry, Kind, RecentEntries, event_in, key_of_run
from waybill.transport.runner import Progress, Step

from ..acks import ROW_PREFIX, Acks
from ..backend import Answer, Backend, Verdict, explain, setting_of
from ..graph import (
    DATASET_PREFIX,
    JOURNEY_PREFIX,
    JobGraph,
    as_start,
    file_event_of,
    outcome_of_record,
    present,
    start_of,
)
from ..links import CollectorLinks
from ..run_states import RunState, run_states
from ..state_batch import StateBatch
from ..subject import Subject, subject_of
from ..summaries import CoalescedEntries, Coalescing, SummaryRules
from .counters import COUNTERS, Counters, counters_of
from .dead_letter_box import OWED_PREFIX, DeadLetter, DeadLetterBox, dead_letter_body, dead_letters
from .pending import PendingEvents
from .schedule import Schedule, SendOutcome
from .tagging import TAGS_PREFIX, Tagging

if TYPE_CHECKING:
    from waybill.facets.flows import FlowNode, FlowPath
    from waybill.transport.journal import Journal

    from ..backend import Target
    from ..graph import FileEvent, Outcome

log = logging.getLogger("waybill.marquez")

CONNECTIONS: Final = 8

_VIEWED: Final = "held"
"""State key of the last event that came into view, which may have been in flight when a runner died."""
_COUNTED: Final = "counted"
"""State key of the last entry whose paths the job graph counted: it counts each entry once."""
_READ_MAX_BYTES: Final = 8 * 2**20
_STUCK_LOOK_EVERY_S: Final = 1.0
_SYNC_EVERY_S: Final = 0.1
_ANSWER_POLL_S: Final = 0.05
_TAGS_AT_END_S: Final = 2.0
"""For how long a delivery that ends still begins to tag jobs; the next runner tags the others."""


class Delivery:
    """Delivers in order per run, at least once, and exactly once where every answer was seen.

    Args:
        backend: closed with the delivery.
        name: the projection's name, under which its cursor and its state are stored.
        connections: how many events may be in flight at a time.
        draws: whether the backend also gets the graph of the flows; see `waybill.marquez.graph`.
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
        rng: Random | None = None,
    ) -> None:
        self.name = name
        self._journal = journal
        self._backend = backend
        self._draws = draws
        self._clock = journal.clock
        self._batch = StateBatch(journal, name)
        self._acks = Acks(journal.cursor(name), journal.state(name, ROW_PREFIX))
        self._pending = PendingEvents(self._acks)
        self._schedule = Schedule(self._pending, rng or Random())  # noqa: S311 - jitter keeps no secret
        self._dead_letters = DeadLetterBox(dead_letters(journal, name))
        self._run_states = run_states(journal, name)
        self._recent = RecentEntries(_READ_MAX_BYTES)
        """The entries that came into view last, as they were fed: most of them are sent soon."""
        self._links = CollectorLinks(journal, summaries.public_url)
        self._coalescing = Coalescing(journal, name, summaries, self._links)
        self._counters = counters_of(journal, name) or Counters()
        self._viewed = self._viewed_before = int(journal.state_get(name, _VIEWED) or 0)
        self._owed: set[int] = set()
        self._repeated: set[int] = set()
        """The owed ends that were delivered before, and are to be a run's last event again."""
        self._outdated: set[int] = set()
        """Those that have become needless, since another end came or the run was begun again."""
        self._senders = ThreadPoolExecutor(connections, thread_name_prefix=f"waybill-{name}-sender")
        self._in_flight: dict[Future[Answer], Entry] = {}
        # A few more than there are connections, so that none waits for this thread to pass it its next event.
        self._in_flight_max = connections + connections // 4
        jobs, datasets = (
            journal.state(name, prefix) if draws else {} for prefix in (JOURNEY_PREFIX, DATASET_PREFIX)
        )
        self._job_graph = JobGraph(jobs, journal.node, datasets)
        tagged_at = backend if draws and isinstance(backend, Backend) else None
        self._tagging = Tagging(journal.state(name, TAGS_PREFIX), tagged_at)
        self._counted = int(journal.state_get(name, _COUNTED) or self._acks.cursor)
        for node in self._job_graph.untold():
            self._tell(node)

    def step(self) -> Step:
        """Read new entries if there is room, send the events that may go, and process the responses."""
        self._store()  # changes that a failing disk did not accept come before anything new
        if self._schedule.wants_key(self._clock.monotonic_s()) and self._backend.renewed():
            self._schedule.circuit.resume(self._clock.monotonic_s())
        looked = self._look()
        self._store()  # the note that an event may be in flight is stored before it is sent
        applied = looked + self._hand_out()
        # While every connection is busy there is nothing else to do; otherwise an event that can go may
        # arrive.
        is_busy = len(self._in_flight) == self._in_flight_max and not self._coalescing.active
        applied += self._take_in(None if is_busy else 0.0 if applied else _ANSWER_POLL_S)
        # No connection idles while the disk writes: the events sent now belong to other runs.
        applied += self._hand_out()
        self._store()
        return self._rest() if not applied else self._step(self._schedule.outage, applied=applied)

    def pending(self) -> int:
        """How many entries are not processed, or are to be sent again."""
        waiting = self._journal.last_seq() - self._acks.cursor - self._acks.above
        return waiting + len(self._owed) + self._job_graph.held_back

    def finish(self) -> None:
        """Wait for the responses to events in flight, so that none of them is repeated, and set tags."""
        while self._in_flight:
            self._take_in(None)
            self._store()
        ends_s = self._clock.monotonic_s() + _TAGS_AT_END_S
        while self._clock.monotonic_s() < ends_s and self._tag():
            self._store()
        self._journal.sync()

    def close(self) -> None:
        """Close the connections to the backend."""
        self._senders.shutdown()
        self._backend.close()

    # -- sending ---------------------------------------------------------------------------------------------

    def _look(self) -> int:
        """Take entries into view while there is room; returns how many."""
        self._coalescing.consider(self._pending.read_after())
        room = self._pending.room(ahead=self._coalescing.active)
        # Events to be sent again go first, so that a flush waits for them too.
        if not room or any(entry.seq in self._owed for entry in self._in_flight.values()):
            return 0
        if admitted := self._admit_owed():
            return admitted
        after = self._pending.read_after()
        entries = self._journal.feed(self.name, after, limit=room, max_bytes=_READ_MAX_BYTES)
        self._recent.add(entries)
        events = [file_event_of(entry.event) for entry in entries]
        takes = self._coalescing.takes
        runs = {key_of_run(run := f"run {one.run_id}"): run for one in events if one and takes(one)}
        states = self._run_states.of(runs)
        begun = {runs[key] for key, one in states.items() if one.end is None or one.end.inferred}
        coalesced = 0
        for entry, event in zip(entries, events, strict=True):
            if self._draws:
                self._learn(entry, event)
            if self._coalesce(entry, event, begun):
                coalesced += 1
            else:
                self._view(entry)
        if coalesced:
            self._count(coalesced=coalesced)
        caught_up = not entries or entries[-1].seq == self._journal.last_seq()
        if self._coalescing.at_work and caught_up:
            self._coalescing.caught_up()
        if self._draws:
            self._draw(entries[-1].seq if entries else 0, caught_up=caught_up)
        return len(entries)

    def _draw(self, last_seq: int, *, caught_up: bool) -> None:
        """Note that all paths up to an entry are counted, and queue the runs of transforms that are due."""
        if last_seq > self._counted:
            self._counted = last_seq
            self._batch.put(_COUNTED, str(last_seq).encode())
        for node in self._job_graph.due(self._clock.now_ms(), caught_up=caught_up):
            self._tell(node)

    def _view(self, entry: Entry) -> None:
        is_event = entry.kind is Kind.OPENLINEAGE
        self._pending.look_at(entry.seq, subject_of(entry.event, entry.seq) if is_event else None)
        if is_event and entry.seq > self._viewed:
            self._viewed = entry.seq
            self._batch.put(_VIEWED, str(entry.seq).encode())

    def _coalesce(self, entry: Entry, event: FileEvent | None, begun: Collection[str]) -> bool:
        """Let an event go into a summary, if it is a file's and its run is not known to the backend."""
        if entry.is_flush:
            self._coalescing.close_all()
            self._job_graph.flush(entry.seq)
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

    def _learn(self, entry: Entry, event: FileEvent | None) -> None:
        """Draw the flows and the datasets that an entry names, and count the paths that ended."""
        if isinstance(entry.event, RunEvent | JobEvent):
            self._job_graph.learn_datasets(entry.event.outputs or ())
        if (begun := entry.begun_transforms) is not None:
            self._job_graph.note_begun(begun, entry.received_ms)
        notes = JobNotes()
        if event is not None and entry.run_event is not None:
            notes = job_notes_of(entry.run_event.job)
            self._tagging.want(event.flow.job_in_marquez, notes)
        for path, outcome in self._paths_of(entry, event):
            jobs = self._job_graph.learn(path, self._clock.now_ms(), notes)
            if entry.seq > self._counted:
                self._job_graph.count(jobs, outcome, entry)

    def _paths_of(self, entry: Entry, event: FileEvent | None) -> list[tuple[FlowPath, Outcome]]:
        if event is not None:
            return [(event.path, self._job_graph.outcome_of(event))]
        if entry.kind is not Kind.PROVENANCE:
            return []
        paths = paths_in_records(entry.body, entry.system_name)
        return [(path, outcome_of_record(record)) for path, record in paths]

    def _tell(self, node: FlowNode) -> None:
        self._owe(self._job_graph.number(node), Subject(f"job {node.namespace} {node.name}"))

    def _admit_owed(self) -> int:
        """Take into view the events to send again; returns how many."""
        owed = [key.removeprefix(OWED_PREFIX) for key in self._journal.state(self.name, OWED_PREFIX)]
        jobs = {one for one in owed if one.startswith(JOURNEY_PREFIX)}
        self._batch.delete(*(f"{OWED_PREFIX}{job}" for job in jobs))
        for node in self._job_graph.forgotten(jobs, self._clock.now_ms()) if jobs else ():
            self._tell(node)
        new = sorted({int(one) for one in owed if one not in jobs} - self._owed)
        for seq in new:
            entry = self._entry(seq)
            if entry is None:
                self._no_longer_owed(seq)
            else:
                self._owe(seq, subject_of(entry.event, seq))
        return len(new) + len(jobs)

    def _owe(self, seq: int, subject: Subject) -> None:
        self._owed.add(seq)
        self._pending.admit(seq, subject)

    def _no_longer_owed(self, seq: int) -> None:
        self._owed.discard(seq)
        self._repeated.discard(seq)
        self._batch.delete(f"{OWED_PREFIX}{seq}")

    def _entry(self, seq: int) -> Entry | None:
        """An event from the journal, or from its dead letter if the journal has deleted it."""
        is_job = seq < 0
        body = self._job_graph.event(self._job_graph.node(seq)) if is_job else self._coalescing.event(seq)
        if body is None:
            recent = self._recent.get(seq)
            entry = recent or next(iter(self._journal.feed(self.name, seq - 1, limit=1)), None)
            if entry is not None and entry.seq == seq and entry.kind is Kind.OPENLINEAGE:
                return entry
            body = dead_letter_body(self._journal, seq, self.name)
        return None if body is None else Entry(seq, 0, Kind.OPENLINEAGE, "", body)

    def _hand_out(self) -> int:
        """Give the connections events; returns how many turned out to be needless, or deleted."""
        passed_over = 0
        while len(self._in_flight) < self._in_flight_max and not (
            self._in_flight and self._schedule.probes(self._clock.monotonic_s())
        ):
            seq = self._schedule.next(self._clock.monotonic_s())
            if seq is None:
                break
            if seq in self._outdated:
                self._outdated.discard(seq)
                self._pass_over(seq)
                passed_over += 1
                continue
            try:
                entry = self._entry(seq)
                if entry is not None:
                    self._in_flight[self._senders.submit(self._deliver, self._bodies(entry))] = entry
            except BaseException:
                # The journal cannot be read, or a stop came in the middle: the event is still to be sent.
                self._schedule.give_back(seq, self._clock.monotonic_s())
                raise
            if entry is None:
                log.warning(
                    "entry %d left the journal, or was damaged, before %s received it",
                    seq,
                    self.name,
                )
                self._pass_over(seq)
                passed_over += 1
        return passed_over

    def _pass_over(self, seq: int) -> None:
        self._schedule.settle(seq)
        self._no_longer_owed(seq)

    def _bodies(self, entry: Entry) -> list[bytes]:
        """The events to send for one; before an end that which says when the run began, if it is needed."""
        start = start_of(entry.body) or self._moved_start(entry)
        events = [] if start is None else [(start, event_in(Kind.OPENLINEAGE, start))]
        events.append((entry.body, entry.event))
        if not self._draws:
            return [body for body, _ in events]
        graph, base = self._job_graph, self._links.base
        return [present(body, event, graph, collector_url=base) for body, event in events]

    def _moved_start(self, end: Entry) -> bytes | None:
        """The start of a run at whose end Marquez takes a later event for it; None if there is none."""
        subject = self._pending.subject_of(end.seq)
        if not self._draws or not subject.is_end:
            return None
        start = self._run_state(subject.key).start
        if start is None or start.is_shown:
            return None
        first = self._entry(start.seq)
        return as_start(end.body, start.time_us // 1000) if first is None else first.body

    def _deliver(self, bodies: list[bytes]) -> Answer:
        """Send events in their order, up to the first that is not accepted."""
        for body in bodies:
            answer = self._backend.deliver(body)
            if answer.verdict is not Verdict.DELIVERED:
                break
        return answer

    def _tags_due_s(self) -> float | None:
        """In how many seconds a job is to be tagged; None: not while events wait or the backend is down."""
        may_tag = not self._pending.held and self._schedule.circuit.due_s is None
        return self._tagging.due_s(self._clock.monotonic_s()) if may_tag else None

    def _tag(self) -> bool:
        """Tag a job if one is due; returns whether one was."""
        if self._tags_due_s() != 0.0:
            return False
        self._tagging.tag_next(self._clock.monotonic_s())
        return True

    # -- answers ---------------------------------------------------------------------------------------------

    def _take_in(self, timeout_s: float | None) -> int:
        """Wait for a response and process all that have arrived; returns how many events are done."""
        if not self._in_flight:
            return 0
        answered, _ = wait(self._in_flight, timeout_s, FIRST_COMPLETED)
        # In journal order, so that what a test sees does not depend on the order of a set.
        futures = sorted(answered, key=lambda future: self._in_flight[future].seq)
        return sum(self._settle(self._in_flight.pop(future), future) for future in futures)

    def _settle(self, entry: Entry, future: Future[Answer]) -> bool:
        """Process the response to one event; returns whether the event is done."""
        seq = entry.seq
        try:
            answer = future.result()
        except Exception:
            self._schedule.give_back(seq, self._clock.monotonic_s())
            raise
        subject, tries = self._pending.subject_of(seq), self._schedule.tries(seq) + 1
        outcome = self._schedule.answered(seq, answer, self._clock.monotonic_s())
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
            self._note_run(entry, subject)
        else:
            self._park(entry, subject.key, tries, answer)
        return True

    def _note_told(self, number: int, answer: Answer) -> None:
        """Note that a job was sent to the backend; if it refuses the job, no run is affected."""
        node = self._job_graph.node(number)
        if answer.verdict is not Verdict.DELIVERED:
            log.warning("%s does not draw %s: %s", self._backend.shown_url, node.name, answer.shown)
        self._owed.discard(number)
        facets = self._job_graph.told(node, self._clock.now_ms())
        if answer.verdict is Verdict.DELIVERED:
            self._tagging.want(node, facets)

    def _note_run(self, entry: Entry, subject: Subject) -> None:
        """Note the state of a run; after any other event its deciding end is sent again."""
        seq, event = entry.seq, entry.run_event
        if event is None or not subject.is_run:
            return
        before = self._run_state(subject.key)
        state = before.take(event, seq)
        end, end_before = state.end, before.end
        tied_to = end or state.attempts.ending
        for name, row in self._run_states.encoded({key_of_run(subject.key): state}).items():
            self._batch.put(name, row, seq=seq if tied_to is None else tied_to.seq)
        if end_before is not None and end_before != end and end_before.seq in self._repeated:
            self._no_longer_owed(end_before.seq)
            self._outdated.add(end_before.seq)
        if end is not None and end.seq != seq:
            self._batch.put(f"{OWED_PREFIX}{end.seq}", b"")
            self._owe(end.seq, Subject(subject.key, is_run=True, is_end=True))
            self._repeated.add(end.seq)
            self._outdated.discard(end.seq)

    def _run_state(self, subject: str) -> RunState:
        key = key_of_run(subject)
        return self._run_states.of([key]).get(key, RunState())

    def _park(self, entry: Entry, key: str, tries: int, answer: Answer) -> None:
        log.warning("%s refused entry %d (%s): %s", self._backend.shown_url, entry.seq, key, answer.shown)
        set_aside_ms = self._clock.now_ms()
        letter = DeadLetter(
            backend=self.name,
            seq=entry.seq,
            key=key,
            received_ms=entry.received_ms or set_aside_ms,
            set_aside_ms=set_aside_ms,
            tries=tries,
            status=answer.status,
            reason=answer.words,
            size_bytes=len(entry.body),
        )
        if self._dead_letters.is_full_for(letter):
            self._store()  # a user may have dropped some
            self._dead_letters = DeadLetterBox(dead_letters(self._journal, self.name))
        self._dead_letters.add(letter, entry.body, self._batch)

    def _count(self, **more: int) -> None:
        sums = {name: getattr(self._counters, name) + count for name, count in more.items()}
        self._counters = msgspec.structs.replace(self._counters, **sums)
        self._batch.put(COUNTERS, msgspec.json.encode(self._counters))

    # -- state and steps -------------------------------------------------------------------------------------

    def _store(self) -> None:
        self._acks.save(self._batch)
        self._coalescing.save(self._batch)
        for key, row in (*self._job_graph.changed(), *self._tagging.changed()):
            self._batch.put(key, row)
        for key, dataset in self._job_graph.datasets.changed():
            if dataset is None:
                self._batch.delete(key)
            else:
                self._batch.put(key, dataset)
        self._batch.commit(self._acks.cursor)
        self._pending.stored()
        for seq, key in self._coalescing.to_send():
            self._pending.admit(seq, Subject(key, is_run=True, is_end=True))

    def _rest(self) -> Step:
        """The outcome of a step that had nothing to do."""
        if self._tag():
            return Step(applied=1)
        sync_s = self._journal.sync(_SYNC_EVERY_S)
        # Windows close as entries are read, and none is while there is no room.
        may_look = self._pending.room(ahead=self._coalescing.active) > 0
        waits_s = (
            self._schedule.wait_s(self._clock.monotonic_s()),
            self._coalescing.wait_s() if may_look else None,
            self._job_graph.wait_s(self._clock.now_ms()) if may_look else None,
            sync_s,
            self._tags_due_s(),
        )
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
    """The progress of an entry in a delivery, for `waybill.transport.runner.progress_of`."""
    if dead_letter_body(journal, seq, projection) is not None:
        return Progress.REFUSED
    if seq in CoalescedEntries(journal, projection):
        return Progress.COALESCED
    is_done = seq in Acks(journal.cursor(projection), journal.state(projection, ROW_PREFIX))
    return Progress.DONE if is_done else None
