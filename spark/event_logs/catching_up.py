"""Catching up: the failures in event logs that the stored events of the same applications lack."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.exporter.names import EVENTS
from waybill.exporter.sources import EventsSource, JournalSource
from waybill.facets import PRODUCER, EventType, RunEvent, decode_event, inferred_reason, parse_instant_us
from waybill.facets.event import read_facet
from waybill.transport import Kind
from waybill.transport.clock import SYSTEM_CLOCK

from ..tracking import (
    Execution,
    FailedExecution,
    ObservedRun,
    ObservedRuns,
    ProgramFailure,
    UnknownRun,
    failure_event,
    has_written,
    hides_write,
    inferred_end_event,
    is_part,
    lost_writes,
    match,
    may_be_of,
    success_event,
    targets_of,
    unknown_run,
    why_nothing,
)

if TYPE_CHECKING:
    from waybill.exporter.sources import Source

    from .applications import LoggedApplication

_CLOCKS_APART_MS: Final = 3_600_000
"""How far the clocks of Spark's host and of ours may be apart."""

ENDED: Final = "its event log says that it has ended"
"""Why an application's run is ended whose end the listener did not report."""

_DETAILS_KEY: Final = b'"spark_applicationDetails"'


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """A failed write or application that was not reported before.

    Attributes:
        run: the listener's run, or a new one if `is_run_known` is false.
        output: the output that it would have written, if known.
        event: the event that reports it.
    """

    application: str
    run: str
    job: str
    output: str | None
    cause: str
    is_run_known: bool
    event: bytes


class CaughtUp(msgspec.Struct, frozen=True, kw_only=True):
    """The results from the log of one application.

    Attributes:
        is_known: whether the stored events contain a run of this application; if not, nothing is corrected.
        failed: how many executions failed.
        waiting: undecided failures, which the listener may still report.
        confirmations: events that confirm writes that the listener reported as successful; for writes of
            RDDs, and writes that may have been ignored, a log does not say.
        ends: events that end the application's own runs by inference: the log has the end, and the listener
            did not report it. The home's runner then ends the runs that they left open.
    """

    application: str
    name: str
    is_known: bool
    failed: int
    corrections: tuple[Correction, ...]
    confirmations: tuple[bytes, ...] = ()
    waiting: tuple[Execution, ...] = ()
    ends: tuple[bytes, ...] = ()

    @property
    def events(self) -> tuple[bytes, ...]:
        """All events to store."""
        return (*(correction.event for correction in self.corrections), *self.confirmations, *self.ends)


def stored_events(home: Path, root: Path, applications: Iterable[LoggedApplication]) -> list[Source]:
    """Where the events of applications are stored: earlier entries are not read.

    Later reports about them may have arrived at any time since.
    """
    begun_ms = min((application.begun_ms for application in applications), default=0)
    since_ms = max(begun_ms - _CLOCKS_APART_MS, 0)
    archive = [EventsSource(root, since_ms)] if (root / EVENTS).is_dir() else []
    return [*archive, JournalSource(home, since_ms)]


def catch_up(
    applications: Iterable[LoggedApplication], sources: Sequence[Source], *, status: int = 0
) -> Iterator[CaughtUp]:
    """Compare logged applications with the stored events of their runs.

    Args:
        applications: as their logs have them.
        sources: where the events are stored.
        status: the exit status of the program of the last application.

    Raises:
        SourceError: not all stored events can be read, so nothing is certain.
    """
    logged = list(applications)
    stored = _stored({application.id for application in logged}, sources)
    last = max(logged, key=lambda application: application.started_ms, default=None)
    for application in logged:
        runs = stored.get(application.id)
        failed = sum(bool(execution.error) for execution in application.executions)
        found = CaughtUp(
            application=application.id, name=application.name, is_known=False, failed=failed, corrections=()
        )
        if runs is not None:
            corrections, waiting = _corrections(application, runs)
            if application is last:
                corrections += _end(application, runs, status)
            confirmations = tuple(_confirmations(application, runs))
            found = msgspec.structs.replace(
                found,
                is_known=True,
                corrections=tuple(corrections),
                confirmations=confirmations,
                waiting=tuple(waiting),
                ends=tuple(_ends(application, runs, {one.run for one in corrections})),
            )
        yield found


class _Details(msgspec.Struct):
    application_id: str | None = msgspec.field(default=None, name="applicationId")


class _Query(msgspec.Struct):
    number: str = msgspec.field(name="externalQueryId")
    application_id: str = msgspec.field(name="source")


_DETAILS: Final = msgspec.json.Decoder(_Details)
_QUERY: Final = msgspec.json.Decoder(_Query)


class _StoredRuns:
    """The stored runs of one application, and its reported failures."""

    def __init__(self) -> None:
        self.roots: set[str] = set()
        self.observed = ObservedRuns(sys.maxsize)
        self.told: set[tuple[FailedExecution, int]] = set()
        self.confirmed: set[str] = set()
        self.inferred: set[str] = set()
        """The runs that Waybill ended by inference."""

    def add_ours(self, event: RunEvent) -> None:
        """Add one of our events, which corrects the listener's; add the listener's first."""
        run = self.observed.runs.get(event.run.runId)
        if run is not None and event.eventType in (EventType.FAIL, EventType.ABORT):
            run.is_reported = True
        elif event.eventType is EventType.COMPLETE:
            self.confirmed.add(event.run.runId)
        query = read_facet(_QUERY, event.run.facets.external_query) if event.run.facets else None
        if query is not None and query.number.isdecimal():
            failed = FailedExecution(query.application_id, int(query.number))
            if run is not None:
                run.failed = failed
            self.told.add((failed, parse_instant_us(event.eventTime) // 1000))

    def application(self) -> ObservedRun | None:
        """The application's own run, which the others name as their parent; None if no event of theirs is."""
        runs = self.observed.runs
        if own := next((runs[root] for root in sorted(self.roots) if root in runs), None):
            return own
        parents = (run.parent for run in runs.values() if run.parent is not None)
        parent = next((parent for parent in parents if parent.run.runId in self.roots), None)
        if parent is None:
            return None
        return ObservedRun(parent.run.runId, parent.job.namespace, parent.job.name)


def _stored(application_ids: Collection[str], sources: Sequence[Source]) -> dict[str, _StoredRuns]:
    """The stored runs of some applications, by the applications' ids.

    Only the START events name the application, so the stored events are read twice: for the runs of the
    applications themselves, and for those that have them as a parent.
    """
    by_root: dict[str, _StoredRuns] = {}
    found: dict[str, _StoredRuns] = {}
    for event in _events(sources, re.compile(re.escape(_DETAILS_KEY))):
        details = read_facet(_DETAILS, event.run.facets.spark_application) if event.run.facets else None
        id_ = None if details is None else details.application_id
        if id_ is not None and id_ in application_ids:
            # An application may have a parent itself, for example an Airflow task.
            parent = None if event.job.job_type.jobType == "APPLICATION" else _parent_of(event)
            root = parent or event.run.runId
            by_root[root] = found.setdefault(id_, _StoredRuns())
            by_root[root].roots.add(root)
    ours: list[tuple[_StoredRuns, RunEvent]] = []
    pattern = re.compile(b"|".join(re.escape(root.encode()) for root in sorted(by_root)))
    for event in _events(sources, pattern) if by_root else ():
        runs = by_root.get(event.run.runId) or by_root.get(_parent_of(event) or "")
        if runs is not None and event.producer == PRODUCER:
            # An inferred end says nothing of a failure, and gives way to one.
            if inferred_reason(event):
                runs.inferred.add(event.run.runId)
            else:
                ours.append((runs, event))
        elif runs is not None:
            runs.observed.observe(event)
    for runs, event in ours:
        runs.add_ours(event)
    return found


def _parent_of(event: RunEvent) -> str | None:
    facets = event.run.facets
    return None if facets is None or facets.parent is None else facets.parent.run.runId


def _events(sources: Sequence[Source], pattern: re.Pattern[bytes]) -> Iterator[RunEvent]:
    for source in sources:
        for part in source.parts():
            for batch in source.read(part):
                for entry in batch:
                    if entry.kind is Kind.OPENLINEAGE and pattern.search(entry.body):
                        event = decode_event(entry.body)
                        if isinstance(event, RunEvent):
                            yield event


def _corrections(
    application: LoggedApplication, stored: _StoredRuns
) -> tuple[list[Correction], list[Execution]]:
    """The corrections for the failures, and the failures that wait for the listener."""
    runs = _runs_of(application, stored)
    succeeded = [execution for execution in application.executions if not execution.error]
    told: list[Execution] = []
    untold: list[Execution] = []
    for execution in application.executions:
        if execution.error:
            failed = FailedExecution(application.id, execution.id), execution.completed_ms
            (told if failed in stored.told else untold).append(execution)
    matched = match([failure for failure in untold if application.has_heard_of(failure)], runs, succeeded)
    pairs = matched.pairs
    taken = {run.run_id for _, run in pairs}
    # For the latest ones, only certain evidence counts, and the rest waits.
    early = match(
        [failure for failure in untold if not application.has_heard_of(failure)],
        [run for run in runs if run.run_id not in taken],
    )
    pairs += early.pairs
    statements = {failure.statement for failure in told}
    pairs = sorted(pairs, key=lambda pair: -pair[0].id)
    for failure, run in pairs:
        run.failed = FailedExecution(application.id, failure.id)
        run.is_part = is_part(failure, run, statements)
        statements |= set() if run.is_part else {failure.statement}
    own, waiting = stored.application(), early.left
    for failure in lost_writes(matched.left, statements):
        if own is None or not application.has_given_up(failure):
            waiting.append(failure)
            continue
        pairs.append((failure, unknown_run(failure, own, application.id)))
    corrections = [
        _correction(application, run, ProgramFailure.of_write(one.error), one.completed_ms, one.job_tags)
        for one, run in pairs
    ]
    return corrections, waiting


def _confirmations(application: LoggedApplication, stored: _StoredRuns) -> Iterator[bytes]:
    """The confirmations of the other writes; call this after the corrections, which take their runs."""
    failed = [execution for execution in application.executions if execution.error]
    succeeded = [
        one
        for one in application.executions
        if not one.error and not hides_write(one.plan) and application.has_heard_of(one)
    ]
    runs = [
        run
        for run in _runs_of(application, stored)
        if run.ended_ms is not None and run.run_id not in stored.confirmed
        if not run.is_reported and not run.has_failed and run.failed is None
    ]
    matched = match(succeeded, runs, failed)
    told: set[int] = set()
    for execution, run in sorted(matched.pairs, key=lambda pair: -pair[0].id):
        nothing = None if _has_written(application, execution) else why_nothing(execution.plan)
        run.is_part = is_part(execution, run, told)
        told |= set() if run.is_part else {execution.statement}
        if nothing is None or execution.submitted_ms > application.after_ms:
            yield success_event(run, source="event log", nothing=nothing, job_tags=execution.job_tags)
    yield from _of_silent(application, stored, matched.left, told)


def _of_silent(
    application: LoggedApplication, stored: _StoredRuns, left: Iterable[Execution], told: set[int]
) -> Iterator[bytes]:
    """The events of writes of which the listener said nothing, with the folders that their plans name."""
    own, runs = stored.application(), _runs_of(application, stored)
    for execution in sorted(left, key=lambda one: -one.id):
        is_told = execution.statement in told or is_part(execution, None, told)
        sinks = targets_of(execution.plan)
        may_be_told = is_told or any(may_be_of(execution, sinks, run) for run in runs)
        if own is None or not (execution.wrote and application.has_given_up(execution)) or may_be_told:
            continue
        run = unknown_run(execution, own, application.id)
        told.add(execution.statement)
        if run.run_id not in stored.confirmed and _has_written(application, execution):
            yield success_event(run, source="event log", job_tags=execution.job_tags)


def _has_written(application: LoggedApplication, execution: Execution) -> bool:
    within = (
        one.plan
        for one in application.executions
        if one.root_id == execution.root_id and one.id > execution.id
    )
    return has_written(execution, within)


def _end(application: LoggedApplication, stored: _StoredRuns, status: int) -> list[Correction]:
    """The application's own failure, unless a tracked session has reported it."""
    failure, own = ProgramFailure.of_status(status), stored.application()
    if failure is None or own is None or own.is_reported:
        return []
    return [_correction(application, own, failure, application.ended_ms or SYSTEM_CLOCK.now_ms())]


def _ends(application: LoggedApplication, stored: _StoredRuns, reported: set[str]) -> Iterator[bytes]:
    """The ends of the application's own runs that are still open, also of earlier attempts.

    A log without an end shows nothing: an idle application and one that was killed leave the same.
    """
    if application.ended_ms is None or not application.is_over:
        return
    for root in sorted(stored.roots - stored.inferred - reported):
        run = stored.observed.runs.get(root)
        if run is None or run.started_ms is None or run.ended_ms is not None or run.is_reported:
            continue
        if run.started_ms <= application.ended_ms:
            yield inferred_end_event(run, application.ended_ms, ENDED)


def _runs_of(application: LoggedApplication, stored: _StoredRuns) -> list[ObservedRun]:
    """The runs of the attempt that this log is of; several attempts have one id, and count from 0 each."""
    runs = []
    for run in stored.observed.runs.values():
        time_ms = run.started_ms or run.ended_ms
        is_later = application.ended_ms is not None and (time_ms or 0) > application.ended_ms
        is_own = run.run_id in stored.roots
        if time_ms is not None and time_ms >= application.started_ms and not (is_later or is_own):
            runs.append(run)
    return runs


def _correction(
    application: LoggedApplication,
    run: ObservedRun,
    failure: ProgramFailure,
    time_ms: int,
    job_tags: Iterable[str] = (),
) -> Correction:
    return Correction(
        application=application.id,
        run=run.run_id,
        job=run.name,
        output=min(run.outputs, default=None),
        cause=failure.message,
        is_run_known=not isinstance(run, UnknownRun),
        event=failure_event(run, failure, time_ms, language="JAVA", job_tags=job_tags),
    )
