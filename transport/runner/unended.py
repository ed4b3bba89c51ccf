"""Runs that nobody else ends: of programs that are gone, of ended Spark applications, and long silent ones.

The runner follows the open runs of the journal and ends these with events that are marked as inferred. If a
run's own terminal event comes later, it replaces the inferred one.

- **A program that is gone** ends none of its runs. An emitter notes itself in the journal's state before its
  first entry, and each of its entries names it. A run belongs to the program that last reported on it. It
  belongs to none if an unknown sender reported last, for example over HTTP, or a scheduler, whose runs
  outlive the process that reports them. A Tracker file that is still open when its program ends normally is
  not ended: nothing more is expected of it. If Spark wrote to a folder of this machine, a look there may show
  that the write was finished.
- **Spark's listener** begins runs that it never ends, such as those of an RDD or of a read without a schema.
  They are ended as their application was, at its time, but a moment after it, since its last events may
  arrive out of order, or once the program is gone. The end of any other parent says nothing about its
  children, which may outlive it.
- **With ``close_stale_after``**, every run that has been silent for that long is ended. Without it, only runs
  of programs and of Spark are followed.

Before runs are ended, everything that was kept up to that point is read. A run is not followed once its end
is read, also an inferred one, so that a crash ends no run twice. When it began and ended is known for as long
as the journal has its entries, whoever reported it: a run that was begun again is open, and a late end of the
attempt before does not close it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.facets import SEVERITY, UNREADABLE, Attempts, EventType, parse_instant_us
from waybill.facets.event import read_facet
from waybill.facets.json_events import instant
from waybill.facets.spark_writes import APPLICATION_ENDED, written

from ..journal import Kind, StateRows, key_of_run
from ..programs import Program
from .commits import Write, find_commit, is_local
from .open_runs import OpenRun, is_of_application, is_of_spark, is_scheduled

if TYPE_CHECKING:
    from waybill.facets import RunEvent

    from ..journal import BegunTransforms, Entry, Journal

PROGRAM_GONE: Final = "the program that ran it is gone"
SETTLE_MS: Final = 10_000
"""An application's runs are ended this long after the application."""

_NAME: Final = "programs"
_PROGRAM: Final = "program:"
_RUN: Final = "run:"
_KNOWN: Final = "known:"
_APPLICATION: Final = "ended:"
_CURSOR: Final = "upto"
_EVERY: Final = "every"
_ENTRIES_AT_ONCE: Final = 2_000
_BYTES_AT_ONCE: Final = 8 * 2**20
_ENDS_AT_ONCE: Final = 1_000
_OPEN_MAX: Final = 100_000
"""Further runs, or ended applications, are not followed."""
_LOOK_FOR_STALE_EVERY_MS: Final = 60_000
_OF_SPARK: Final = b"SPARK"


class _Followed(OpenRun, frozen=True, array_like=True):
    """An open run: when its last event came, and for a run of Spark, the key of its application's run.

    A run of Spark has its outputs, when it began, and Spark's own name of its application; it is contested if
    another run had one of them since.
    """

    last_ms: int = 0
    application: str = ""
    is_application: bool = False
    outputs: tuple[tuple[str, str], ...] = ()
    began_ms: int = 0
    is_contested: bool = False
    application_id: str = ""
    attempts: Attempts = Attempts()


class _Ended(msgspec.Struct, frozen=True, array_like=True):
    """When an application began and ended, and when its last end was accepted."""

    attempts: Attempts
    received_ms: int


class _Round(msgspec.Struct):
    """The causes whose runs are ended once the entries up to `upto` are read."""

    upto: int
    programs: dict[str, bool]
    """Those that are gone, and whether they ended normally."""
    applications: set[str]
    looks_for_stale: bool


def note_program(journal: Journal, program: Program, *, has_left: bool = False) -> None:
    """Note a program before its first entry is kept, or note that it ends normally."""
    row = msgspec.msgpack.encode(has_left)
    journal.commit(_NAME, put={f"{_PROGRAM}{program}": row}, durable=False)


class UnendedRuns:
    """Follows open runs, and ends those that nobody else ends.

    Args:
        stale_ms: how long a run may be silent; None for no limit.
    """

    def __init__(self, journal: Journal, stale_ms: int | None = None) -> None:
        self._journal = journal
        self._run_rows = StateRows(journal, _NAME, _RUN, _Followed)
        self._known_rows = StateRows(journal, _NAME, _KNOWN, Attempts)
        self._application_rows = StateRows(journal, _NAME, _APPLICATION, _Ended)
        self._stale_ms = stale_ms
        self._runs: dict[str, _Followed] = {}
        self._changed: set[str] = set()
        """The keys of runs whose rows are to be written."""
        self._writing: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        """The keys of the followed runs that have an output, by the output."""
        self._ended: dict[str, _Ended] = {}
        """How applications ended, by key, until their runs are ended."""
        self._known: dict[str, Attempts] = {}
        """When other runs began and ended, as far as events now being read are about them."""
        self._cursor: int | None = None
        self._looked_ms = 0
        self._round: _Round | None = None
        self.waits = False
        """Whether an open run may soon be ended: its application has ended, or its program can be checked."""

    def look(self, now_ms: int) -> bool:
        """Do a bounded piece of work; return whether there is more to do at once.

        Raises:
            JournalError: the journal cannot be read or written; the next call tries again.
        """
        if self._cursor is None:
            self._cursor = self._load()
        if self._round is None:
            self._round = self._begin(now_ms)
        self._cursor = self._follow(self._cursor)
        if self._round is not None and self._cursor >= self._round.upto:
            self._end_runs(self._round, now_ms)
        programs = {one.program for one in self._runs.values() if one.program}
        self.waits = bool(self._ended) or any(Program.parse(name).is_of_here for name in programs)
        return self._cursor < self._journal.last_seq()

    def _load(self) -> int:
        """Load the runs that the last runner followed; return where to read on, or 0 to reread."""
        self._runs, self._ended = self._run_rows.all(), self._application_rows.all()
        for key, one in self._runs.items():
            for output in one.outputs:
                self._writing[output].add(key)
        state = self._journal.state_of(_NAME, (_CURSOR, _EVERY))
        if self._stale_ms is not None and _EVERY not in state:
            self._journal.commit(_NAME, put={_EVERY: b"", _CURSOR: b"0"}, durable=False)
            return 0
        if self._stale_ms is None and _EVERY in state:
            for key, one in list(self._runs.items()):
                self._set(key, one)
            self._store({}, [_EVERY])
        return int(state.get(_CURSOR, 0))

    def _begin(self, now_ms: int) -> _Round | None:
        """The round that ends what is due; None if nothing is."""
        programs = {name: one for name, one in self._noted().items() if Program.parse(name).is_gone}
        applications = {
            key for key, end in self._ended.items() if _is_over(end.received_ms, SETTLE_MS, now_ms)
        }
        looks_for_stale = self._stale_ms is not None and _is_over(
            self._looked_ms, _LOOK_FOR_STALE_EVERY_MS, now_ms
        )
        if not (programs or applications or looks_for_stale):
            return None
        return _Round(self._journal.last_seq(), programs, applications, looks_for_stale)

    def _noted(self) -> dict[str, bool]:
        """The noted programs, and whether they ended normally."""
        rows = self._journal.state(_NAME, _PROGRAM)
        return {key.removeprefix(_PROGRAM): _NOTED.decode(value) for key, value in rows.items()}

    def _follow(self, cursor: int) -> int:
        """Read the next entries; return the last one's number."""
        entries = self._journal.follow(cursor, limit=_ENTRIES_AT_ONCE, max_bytes=_BYTES_AT_ONCE)
        if not entries:
            return cursor
        programs = self._noted()  # after the entries: a program is noted before its first entry
        looks = self._stale_ms is not None or bool(self._runs) or bool(programs)
        if looks or any(_OF_SPARK in entry.body for entry in entries):
            events = [entry.run_event for entry in entries]
            keys = {key_of_run(event.run.runId) for event in events if event is not None}
            # What is here already was read before, and could not be stored.
            self._known = self._known_rows.of(keys - self._runs.keys()) | self._known
            for entry, event in zip(entries, events, strict=True):
                if (begun := entry.begun_transforms) is not None:
                    self._take_begun(begun, entry.received_ms)
                if event is not None:
                    is_of_program = entry.program in programs and not is_scheduled(event)
                    self._take(event, entry, entry.program if is_of_program else None)
        self._store({_CURSOR: str(entries[-1].seq).encode()})
        return entries[-1].seq

    def _take(self, event: RunEvent, entry: Entry, program: str | None) -> None:
        key = key_of_run(event.run.runId)
        outputs = _outputs_of(event)
        for other in {other for output in outputs for other in self._writing.get(output, ())} - {key}:
            self._set(other, msgspec.structs.replace(self._runs[other], is_contested=True))
        known = self._runs.get(key)
        before = known.attempts if known is not None else self._known.pop(key, Attempts())
        attempts = before.merge(Attempts.of(event, _instant_us(event)))
        if attempts.has_ended:
            self._set(key, None)
            self._known[key] = attempts
            is_application = is_of_application(event) or (known is not None and known.is_application)
            if event.eventType in SEVERITY and is_application and len(self._ended) < _OPEN_MAX:
                ended = self._ended.get(key, _Ended(attempts, 0))
                self._ended[key] = _Ended(attempts.merge(ended.attempts), entry.received_ms)
        elif known is not None:
            last_ms = known.last_ms if self._stale_ms is None else max(known.last_ms, entry.received_ms)
            outputs = tuple(sorted({*known.outputs, *outputs}))
            changed = {"last_ms": last_ms, "outputs": outputs, "attempts": attempts}
            self._set(key, msgspec.structs.replace(known, program=program or "", **changed))
        elif len(self._runs) < _OPEN_MAX:
            run = _Followed.begun_by(event, entry)
            followed = msgspec.structs.replace(
                run,
                program=program or "",
                last_ms=entry.received_ms,
                application=key_of_run(run.parent_id) if is_of_spark(event) and run.parent_id else "",
                is_application=is_of_application(event),
                outputs=outputs,
                began_ms=_instant_us(event) // 1_000,
                application_id=_application_id_of(event),
                attempts=attempts,
            )
            self._set(key, followed)
        else:
            self._known[key] = attempts

    def _take_begun(self, begun: BegunTransforms, at_ms: int) -> None:
        """Take the note of a run; it is no news of one that has ended, or is not followed."""
        key = key_of_run(begun.run_id)
        if (known := self._runs.get(key)) is not None:
            last_ms = known.last_ms if self._stale_ms is None else max(known.last_ms, at_ms)
            self._set(key, msgspec.structs.replace(known, begun=begun, last_ms=last_ms))

    def _set(self, key: str, one: _Followed | None) -> None:
        """Follow a run, but only as long as it can become due."""
        if one and (one.program or one.application or one.is_application or self._stale_ms is not None):
            if self._runs.get(key) != one:
                self._runs[key] = one
                self._changed.add(key)
                for output in one.outputs:
                    self._writing[output].add(key)
            return
        if one is not None:
            self._known[key] = one.attempts
        if (before := self._runs.pop(key, None)) is not None:
            self._changed.add(key)
            for output in before.outputs:
                self._writing[output].discard(key)
                if not self._writing[output]:
                    del self._writing[output]

    def _store(self, put: dict[str, bytes], delete: Iterable[str] = ()) -> None:
        """Commit rows together with the runs that have changed."""
        runs = {key: self._runs[key] for key in self._changed if key in self._runs}
        known = self._known_rows.encoded(self._known)
        put |= self._run_rows.encoded(runs) | known | self._application_rows.encoded(self._ended)
        gone = [self._run_rows.name(key) for key in self._changed - runs.keys()]
        seqs = dict.fromkeys(known, self._journal.last_seq())
        self._journal.commit(_NAME, put=put, delete=[*delete, *gone], seqs=seqs, durable=False)
        self._changed, self._known = set(), {}

    def _end_runs(self, due: _Round, now_ms: int) -> None:
        """End some of the runs that are due, or the round if none is left."""
        ends = list(islice(self._ends(due, now_ms), _ENDS_AT_ONCE))
        if ends:
            self._journal.append_many([(Kind.OPENLINEAGE, body, system_name) for body, system_name in ends])
            due.upto = self._journal.last_seq()
            return
        for key, one in list(self._runs.items()):
            if one.program in due.programs:  # a file of a program that ended normally
                self._set(key, msgspec.structs.replace(one, program=""))
        for key in due.applications:
            self._ended.pop(key, None)
        forgotten = [_PROGRAM + name for name in due.programs]
        self._store({}, [*forgotten, *(_APPLICATION + key for key in due.applications)])
        if due.looks_for_stale:
            self._looked_ms = now_ms
        self._round = None

    def _ends(self, due: _Round, now_ms: int) -> Iterator[tuple[bytes, str]]:
        """The ends of the runs that are due, and the names of their systems."""
        for one in self._runs.values():
            is_gone = one.program in due.programs and not (one.file and due.programs[one.program])
            ended = self._ended.get(one.application)
            ending = None if ended is None else ended.attempts.ending
            if ending is not None and (is_gone or one.application in due.applications):
                kind, at_ms = _BY_SEVERITY[ending.severity], ending.time_us // 1_000
                yield _end_of(one, at_ms, APPLICATION_ENDED, kind, is_of_here=is_gone), one.system_name
            elif is_gone:
                yield _end_of(one, now_ms, PROGRAM_GONE, EventType.ABORT, is_of_here=True), one.system_name
            elif due.looks_for_stale and 0 < one.last_ms < now_ms - (self._stale_ms or 0):
                since = f"nothing was heard of it since {instant(one.last_ms)}"
                yield one.end(now_ms, f"{since}, and close_stale_after ended it"), one.system_name


class _Details(msgspec.Struct):
    id: str = msgspec.field(default="", name="applicationId")


def _application_id_of(event: RunEvent) -> str:
    facets = event.run.facets
    details = None if facets is None else read_facet(_DETAILS, facets.spark_application)
    return "" if details is None else details.id


def _outputs_of(event: RunEvent) -> tuple[tuple[str, str], ...]:
    """The outputs of a run of Spark's, as namespace and name, sorted."""
    if not is_of_spark(event) or not event.outputs:
        return ()
    return tuple(sorted({output.recorded for output in written(event)}))


def _end_of(one: _Followed, at_ms: int, reason: str, kind: EventType, *, is_of_here: bool) -> bytes:
    """The end of a run; of a write of this machine, it says whether the write was finished."""
    if not one.outputs or not is_of_here:
        return one.end(at_ms, reason, kind)
    not_known = f"{reason}; whether its write was finished is not known"
    if one.is_contested:
        return one.end(at_ms, f"{not_known}: another run wrote there since", kind)
    if not all(map(is_local, one.outputs)):
        return one.end(at_ms, f"{not_known}: its output is not on this machine", kind)
    try:
        commit = find_commit(one.outputs, Write(one.began_ms, one.name, one.application_id))
    except OSError as error:
        return one.end(at_ms, f"{not_known}: {error.strerror or error}", kind)
    if commit is None:  # Nothing shows that it was finished, even if its application was.
        return one.end(at_ms, reason, EventType.ABORT if kind is EventType.COMPLETE else kind)
    found = f"{reason}, but {commit.name} of its output is newer than its start"
    return one.end(commit.at_ms, found, EventType.COMPLETE, one.outputs)


def _instant_us(event: RunEvent) -> int:
    try:
        return parse_instant_us(event.eventTime)
    except UNREADABLE:
        return 0  # the layout sets it aside


def _is_over(since_ms: int, wait_ms: int, now_ms: int) -> bool:
    """Whether a wait is over; it is also over if the clock was set back by more than the wait."""
    return not since_ms - wait_ms <= now_ms < since_ms + wait_ms


_BY_SEVERITY: Final = {severity: kind for kind, severity in SEVERITY.items()}
_DETAILS: Final = msgspec.json.Decoder(_Details)
_NOTED: Final = msgspec.msgpack.Decoder(bool)
