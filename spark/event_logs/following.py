"""Following: a collector catches up from event logs as they change.

A log is read when it has changed, and again until all its contents are decided: the listener's events may
arrive after the log's. For a recent failure only strong evidence counts, and it does not become a separate
record while its application may continue. The decisions for each log are noted in the journal after the
corrections, so that nothing is reported twice, whatever ends the process in between.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from waybill.collector.event_logs import STATE, STATUS, EventLogStatus
from waybill.transport import AdmissionError, JournalError, WaybillError
from waybill.transport.clock import SYSTEM_CLOCK, Clock
from waybill.transport.root import check_root

from .applications import LoggedApplication
from .catching_up import catch_up, stored_events
from .files import EventLog, EventLogError, look_up_logs

if TYPE_CHECKING:
    from waybill.transport import Journal
    from waybill.transport.home import Home

    from .catching_up import CaughtUp

log = logging.getLogger("waybill.spark")

HEARD_MS: Final = 10_000
"""The longest delay of the listener's events after the log's; after that, weaker evidence counts."""

GRACE_MS: Final = 60_000
"""How long a failure waits for a run; also how long a new file may be incomplete."""

_QUIET_MS: Final = 600_000
"""An application without an end counts as gone once its log has not grown for this long."""

_AGAIN_MS_MAX: Final = 3_600_000
_GIVEN_UP_MS: Final = 86_400_000
"""Failures still undecided this long after the last change of their log stay undecided."""

_OUT_OF_ORDER_MS: Final = 10_000
"""How far out of order the ends of executions may be in a log."""

_CHARS_AT_ONCE: Final = 32 * 2**20
_CHARS_MAX: Final = 128 * 2**20
_LOGS_AT_ONCE: Final = 100
_PROBLEMS_MAX: Final = 20
_LOG: Final = "log:"


class _Note(msgspec.Struct, frozen=True, array_like=True):
    """The state of a log.

    Attributes:
        version: the version that was read.
        looked_ms: when it was read.
        settled_ms: executions that ended by then are decided.
        is_done: whether it is only read again when it has changed.
        problem: why it could not be read.
    """

    version: bytes = b""
    looked_ms: int = 0
    settled_ms: int = 0
    is_done: bool = False
    problem: str = ""

    def is_due(self, version: bytes, changed_ms: int, now_ms: int) -> bool:
        """Whether to read the log: it has changed, or its age since the last check has doubled."""
        if version != self.version:
            return True
        pause_ms = min(max(self.looked_ms - changed_ms, 0), _AGAIN_MS_MAX)
        return not self.is_done and now_ms >= self.looked_ms + pause_ms


class _Read(NamedTuple):
    """A log that was read, and its previous state."""

    key: str
    log: EventLog
    note: _Note
    application: LoggedApplication


class EventLogFollower:
    """Follows the event logs at some locations, for one home.

    Args:
        places: folders, or URLs of object stores, as `spark.eventLog.dir` names them.
        every_s: the interval between checks.
    """

    def __init__(
        self,
        places: Sequence[str],
        *,
        every_s: float = 30.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.every_s = every_s
        self._places = places
        self._clock = clock
        self._notes: dict[str, _Note] | None = None
        self._status = EventLogStatus()
        self._told: dict[str, str] = {}

    def look(self, home: Home, is_ended: Callable[[], bool] = lambda: False) -> None:
        """Read changed logs, and correct the home's records; the next check continues what takes too long.

        Unreadable logs are reported once in the log, and in the status in the journal.

        Raises:
            JournalError: the home cannot be used now; the next check does the rest.
        """
        begun_s = self._clock.monotonic_s()
        notes = self._recall(home.journal)
        problems: dict[str, str] = {}
        logs = dict(self._listed(problems))
        gone = [] if problems else [key for key in notes if key not in logs]
        try:
            check_root(home.journal, home.settings.root)
            for together in self._read_due(logs, notes, self._clock.now_ms()):
                self._catch_up(home, together)
                if is_ended() or self._clock.monotonic_s() - begun_s >= self.every_s:
                    break
        except JournalError:
            raise
        except (WaybillError, OSError) as error:
            problems[str(home.settings.root)] = str(error)
        problems |= {
            one.name: notes[key].problem for key, one in logs.items() if key in notes and notes[key].problem
        }
        self._tell(home.journal, problems, gone)

    def _recall(self, journal: Journal) -> dict[str, _Note]:
        if self._notes is None:
            stored = journal.state(STATE, _LOG)
            self._notes = {key: msgspec.msgpack.decode(value, type=_Note) for key, value in stored.items()}
            self._status = EventLogStatus.of(journal) or self._status
            self._told = dict(self._status.problems)
            journal.commit(STATE, put={STATUS: msgspec.msgpack.encode(self._status)}, durable=False)
        return self._notes

    def _listed(self, problems: dict[str, str]) -> Iterator[tuple[str, EventLog]]:
        for place in self._places:
            try:
                for one in look_up_logs(place):
                    yield _LOG + _digest(one.identity).hex(), one
            except EventLogError as error:
                problems[place] = str(error)

    def _read_due(
        self, logs: Mapping[str, EventLog], notes: dict[str, _Note], now_ms: int
    ) -> Iterator[list[_Read]]:
        """The logs that are due, as many together as memory allows: the last day's in turn, then others."""

        def turn(item: tuple[str, EventLog]) -> tuple[bool, int, int]:
            key, one = item
            is_old = now_ms - one.changed_ms >= _GIVEN_UP_MS
            return is_old, notes.get(key, _Note()).looked_ms, -one.changed_ms

        together: list[_Read] = []
        chars = 0
        for key, one in sorted(logs.items(), key=turn):
            before = notes.get(key, _Note())
            version = _digest(repr(one.version))
            if not before.is_due(version, one.changed_ms, now_ms):
                continue
            age_ms = now_ms - one.changed_ms
            note = msgspec.structs.replace(
                before, version=version, looked_ms=now_ms, is_done=age_ms >= _GIVEN_UP_MS, problem=""
            )
            try:
                application = _read(one, note)
            except EventLogError as error:
                # A file that is being written or renamed is complete at a later check.
                problem = str(error) if age_ms >= GRACE_MS else ""
                notes[key] = msgspec.structs.replace(note, problem=problem)
                continue
            together.append(_Read(key, one, note, application))
            chars += application.plan_chars
            if chars > _CHARS_AT_ONCE or len(together) >= _LOGS_AT_ONCE:
                yield together
                together, chars = [], 0
        if together:
            yield together

    def _catch_up(self, home: Home, together: Sequence[_Read]) -> None:
        """Correct the home's records of some applications, then note the decisions."""
        notes = self._recall(home.journal)
        for read, found in zip(together, _compare(home, together), strict=True):
            problem = _keep(home, found)
            note = _noted(read, found)
            notes[read.key] = msgspec.structs.replace(note, problem=problem)
            if found.events:
                what = "%s (%s): event log read, %d failures corrected, %d writes confirmed, %d ends inferred"
                corrected, confirmed = len(found.corrections), len(found.confirmations)
                log.info(what, found.application, found.name, corrected, confirmed, len(found.ends))
                self._status = msgspec.structs.replace(
                    self._status,
                    corrected=self._status.corrected + corrected,
                    confirmed=self._status.confirmed + confirmed,
                )
        put = {read.key: msgspec.msgpack.encode(notes[read.key]) for read in together}
        put[STATUS] = msgspec.msgpack.encode(self._status)
        home.journal.commit(STATE, put=put, durable=False)

    def _tell(self, journal: Journal, problems: Mapping[str, str], gone: Sequence[str]) -> None:
        """Report new problems, and forget logs that are gone."""
        for place, problem in problems.items():
            if self._told.get(place) != problem:
                log.warning("%s", problem)
        self._told = dict(problems)
        kept = dict(sorted(problems.items())[:_PROBLEMS_MAX])
        if kept != self._status.problems or gone:
            self._status = msgspec.structs.replace(self._status, problems=kept)
            journal.commit(
                STATE, put={STATUS: msgspec.msgpack.encode(self._status)}, delete=gone, durable=False
            )
        for key in gone:
            self._recall(journal).pop(key)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).digest()


def _read(one: EventLog, note: _Note) -> LoggedApplication:
    after_ms = max(note.settled_ms - _OUT_OF_ORDER_MS, 0)
    application = LoggedApplication.read(one, after_ms=after_ms, chars_max=_CHARS_MAX)
    application.heard_ms = note.looked_ms - HEARD_MS
    is_over = application.ended_ms is not None or note.looked_ms - one.changed_ms >= _QUIET_MS
    application.given_up_ms = note.looked_ms - GRACE_MS if is_over else 0
    return application


def _compare(home: Home, together: Sequence[_Read]) -> list[CaughtUp]:
    """The results of each log; for applications whose latest events do not name them, all events are read."""
    place = home.settings.home, home.settings.root
    applications = [read.application for read in together]
    found = list(catch_up(applications, stored_events(*place, applications)))
    unknown = [
        one for one, what in zip(applications, found, strict=True) if one.after_ms and not what.is_known
    ]
    for application in unknown:
        application.after_ms = 0
    again = iter(catch_up(unknown, stored_events(*place, unknown)) if unknown else ())
    return [
        next(again) if any(one is other for other in unknown) else what  # one for each
        for one, what in zip(applications, found, strict=True)
    ]


def _keep(home: Home, found: CaughtUp) -> str:
    """Store the corrections; returns the problem with one that could not be stored, or an empty text."""
    problem = ""
    for event in found.events:
        try:
            home.emit(event)
        except AdmissionError as error:
            problem = f"a correction for {found.application} could not be stored: {error}"
    return problem


def _noted(read: _Read, found: CaughtUp) -> _Note:
    """The state of a log after the comparison."""
    application, note = read.application, read.note
    is_awaited = application.ended_ms is not None and not application.is_over
    if not application.executions:
        is_old = note.looked_ms - read.log.changed_ms >= GRACE_MS and not is_awaited
        return msgspec.structs.replace(note, is_done=note.is_done or is_old)
    if not found.is_known:
        return note
    latest = (one for one in application.executions if one.completed_ms > note.looked_ms - GRACE_MS)
    undecided_ms = [one.completed_ms for one in (*found.waiting, *latest)]
    settled_ms = max(one.completed_ms for one in application.executions)
    return msgspec.structs.replace(
        note,
        settled_ms=min(undecided_ms) - 1 if undecided_ms else settled_ms,
        is_done=note.is_done or not (undecided_ms or is_awaited),
    )
