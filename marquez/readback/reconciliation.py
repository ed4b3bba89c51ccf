"""Reconciliation: comparing delivered events with those that the backend returns.

Responses can be wrong, and databases can be restored from yesterday's backup. So the backend's events of a
period are read and compared with the journal's, each by its run, its instant and its type, because Marquez
re-serialises the events. Missing events can be sent again: like a retried dead letter they go before
anything new, and a finished run gets its terminal event last. For coalesced events, their summary is
compared.

Runs are compared too, each by its state, its start and its end, because Marquez can lose them, or their job,
while it keeps their events. The missing events of a run are then its first one and the one that decides its
state.

The jobs of the graph are compared too, each by its name: Marquez does not give JobEvents back, but it does
give the jobs.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.facets import RunEvent, parse_instant_us
from waybill.facets.flows import FlowNode
from waybill.transport.config import MARQUEZ
from waybill.transport.journal import Kind, event_in

from ..acks import ROW_PREFIX, Acks
from ..delivery import OWED_PREFIX, dead_letters
from ..graph import JOURNEY_PREFIX, Job, row_key
from ..summaries import CoalescedEntries, summary_event
from .run_comparison import KnownRuns, is_later, is_lesser

if TYPE_CHECKING:
    from waybill.transport.journal import Journal

    from .event_reader import EventReader

_RECONCILED: Final = "reconciled"
_RECONCILED_RUNS: Final = "reconciled-runs"


class MissingEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One delivered event that the backend lacks, or whose effect on its run the backend lacks.

    Attributes:
        event_time: as the event has it.
    """

    seq: int
    run_id: str
    event_type: str
    event_time: str

    @property
    def time_us(self) -> int:
        """The instant of the event, epoch microseconds."""
        return parse_instant_us(self.event_time)

    @property
    def identity(self) -> bytes:
        """The identity of the event, in the journal and at the backend."""
        text = f"{self.run_id} {self.time_us} {self.event_type.upper()}"
        return blake2b(text.encode(), digest_size=16).digest()


class MissingJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job of the graph, ``<data source>.<transform>``, that the backend lacks, or some edges of it."""

    namespace: str
    name: str


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a comparison.

    Attributes:
        compared: how many delivered run events of the journal were compared; `compared_jobs` likewise.
        missing: those that the backend does not have, in journal order.
        unreadable: how many other events cannot be compared, because the backend cannot read its own events
            of those instants.
    """

    compared: int
    missing: tuple[MissingEvent, ...]
    unreadable: int = 0
    compared_jobs: int = 0
    missing_jobs: tuple[MissingJob, ...] = ()


def reconcile(
    journal: Journal, reader: EventReader, *, since_ms: int = 0, backend: str = MARQUEZ
) -> Reconciliation:
    """Compare the delivered run events and jobs of the graph with those that the backend has.

    This covers events that the journal accepted from `since_ms` on (epoch milliseconds), and jobs that were
    sent from then on. Events that the backend deleted after its retention count as missing, so do not look
    back further than that.

    Raises:
        MarquezReadError: the backend cannot be read.
    """
    after, upto = _last_before(journal, since_ms), journal.last_seq()
    found = _compare(journal, reader, backend, after, upto)
    missing = {
        one.seq: one for one in (*found.missing, *_compare_runs(journal, reader, backend, after, upto))
    }
    told = _told_jobs(journal, backend, since_ms)
    return msgspec.structs.replace(
        found,
        missing=tuple(missing[seq] for seq in sorted(missing)),
        compared_jobs=len(told),
        missing_jobs=_forgotten(journal, told, reader),
    )


def reconcile_new(
    journal: Journal,
    reader: EventReader,
    *,
    since_ms: int = 0,
    backend: str = MARQUEZ,
    entries_at_once: int = 50_000,
) -> Iterator[Reconciliation]:
    """Compare the events delivered since the last time, in batches, and send missing ones again.

    Their runs are compared at the end, and so are the jobs of the graph, each time; they have a separate
    result if some are missing.

    Nothing that the journal accepted before `since_ms` (epoch milliseconds) is compared. Each result covers
    `entries_at_once` entries.

    Raises:
        MarquezReadError: the backend cannot be read; the next call continues from there.
    """
    first = _last_before(journal, since_ms)
    after = max(int(journal.state_get(backend, _RECONCILED) or 0), first)
    while after < (upto := min(after + entries_at_once, journal.cursor(backend))):
        found = _compare(journal, reader, backend, after, upto)
        repair(journal, found.missing, backend)
        journal.commit(backend, put={_RECONCILED: str(upto).encode()})
        after = upto
        yield found
    runs_after = max(int(journal.state_get(backend, _RECONCILED_RUNS) or 0), first)
    missing = tuple(_compare_runs(journal, reader, backend, runs_after, after))
    told = _told_jobs(journal, backend, since_ms)
    jobs = _forgotten(journal, told, reader)
    repair(journal, [*missing, *jobs], backend)
    journal.commit(backend, put={_RECONCILED_RUNS: str(after).encode()})
    if missing or jobs:
        yield Reconciliation(compared=0, missing=missing, compared_jobs=len(told), missing_jobs=jobs)


def _compare(journal: Journal, reader: EventReader, backend: str, after: int, upto: int) -> Reconciliation:
    wanted: dict[bytes, int] = {}
    first_us, last_us, compared = 2**63, 0, 0
    for event, *_ in _delivered(journal, backend, after, upto):
        compared += 1
        wanted.setdefault(event.identity, event.seq)
        first_us, last_us = min(first_us, event.time_us), max(last_us, event.time_us)
    instants_us: list[int] = []
    if wanted:
        # The backend rounds to microseconds.
        for bodies in reader.read(first_us, last_us + 2, instants_us.append):
            for found in filter(None, map(_event_of, map(_run_event, bodies))):
                wanted.pop(found.identity, None)
    lacking = list(_read(journal, backend, wanted.values()))
    unreadable_us = {one for instant_us in instants_us for one in (instant_us - 1, instant_us)}
    missing = tuple(one for one in lacking if one.time_us not in unreadable_us)
    unreadable = len(lacking) - len(missing)
    return Reconciliation(compared=compared - unreadable, missing=missing, unreadable=unreadable)


def _compare_runs(
    journal: Journal, reader: EventReader, backend: str, after: int, upto: int
) -> Iterator[MissingEvent]:
    with contextlib.closing(KnownRuns(journal, backend, _held_back(journal, backend))) as runs:
        for known, event, body in _delivered(journal, backend, after, upto):
            runs.add(known.seq, event, body)
        yield from _read(journal, backend, runs.lacking(reader))


def _read(journal: Journal, backend: str, seqs: Iterable[int]) -> Iterator[MissingEvent]:
    """The missing events, without those that are held back and those that the journal has deleted."""
    for seq in sorted(set(seqs) - _held_back(journal, backend)):
        body = summary_event(journal, backend, seq)
        if body is None:
            body = next((entry.body for entry in journal.read(seq - 1, limit=1) if entry.seq == seq), b"")
        if (event := _event_of(_run_event(body), seq)) is not None:
            yield event


def _held_back(journal: Journal, backend: str) -> set[int]:
    """The entries that the backend refused, that cannot be sent, or that wait to be sent again."""
    owed = [key.removeprefix(OWED_PREFIX) for key in journal.state(backend, OWED_PREFIX)]
    return {
        *(letter.seq for letter in dead_letters(journal, backend)),
        *(poison.seq for poison in journal.poison.all(backend)),
        *(int(name) for name in owed if not name.startswith(JOURNEY_PREFIX)),
    }


def repair(journal: Journal, missing: Sequence[MissingEvent | MissingJob], backend: str = MARQUEZ) -> None:
    """Let the home's runner send these again, before anything new."""
    names = [
        row_key(FlowNode(one.namespace, one.name)) if isinstance(one, MissingJob) else one.seq
        for one in missing
    ]
    journal.commit(backend, put={f"{OWED_PREFIX}{name}": b"" for name in names})


def _told_jobs(journal: Journal, backend: str, since_ms: int) -> list[Job]:
    """The jobs of the graph that were sent to the backend completely."""
    jobs = [msgspec.json.decode(row, type=Job) for row in journal.state(backend, JOURNEY_PREFIX).values()]
    return sorted((job for job in jobs if job.told_ms and job.told_ms >= since_ms), key=lambda job: job.node)


def _forgotten(journal: Journal, told: Iterable[Job], reader: EventReader) -> tuple[MissingJob, ...]:
    return tuple(
        MissingJob(namespace=job.node.namespace, name=job.node.name)
        for job in told
        if not (reader.draws(job.node, job.inputs, job.outputs) and _has_last_run(journal, job, reader))
    )


def _has_last_run(journal: Journal, job: Job, reader: EventReader) -> bool:
    """Whether the backend has the last run of a job of the graph, in its final state and with its times."""
    if job.last is None:
        return True
    shown = reader.run(job.last.run_id(journal.node, job.node))
    if shown is None or is_lesser(shown.state, "FAILED" if job.last.failed else "COMPLETED"):
        return False
    began_ms, ended_ms = job.last.span_ms
    is_early = shown.ended_us is None or is_later(ended_ms * 1000, shown.ended_us)
    return not is_early and not is_later(shown.started_us, began_ms * 1000)


def _delivered(
    journal: Journal, backend: str, after: int, upto: int
) -> Iterator[tuple[MissingEvent, RunEvent, bytes]]:
    acks = Acks(journal.cursor(backend), journal.state(backend, ROW_PREFIX))
    held_back = _held_back(journal, backend)
    coalesced = CoalescedEntries(journal, backend)
    while entries := [entry for entry in journal.read(after) if entry.seq <= upto]:
        after = entries[-1].seq
        for entry in entries:
            if entry.kind is not Kind.OPENLINEAGE or entry.seq not in acks or entry.seq in held_back:
                continue
            sent, body = entry.run_event, entry.body
            if entry.seq in coalesced:
                body = summary_event(journal, backend, entry.seq) or b""
                sent = _run_event(body)
            # JobEvents and DatasetEvents are left out: the backend does not return them.
            if sent is not None and (event := _event_of(sent, entry.seq)) is not None:
                yield event, sent, body


def _last_before(journal: Journal, since_ms: int) -> int:
    """The last entry that was accepted before an instant; later entries are never accepted earlier."""
    first = journal.first()
    befores = range(first.seq - 1 if first else 0, journal.last_seq())
    return befores.start + bisect_left(
        befores, since_ms, key=lambda before: journal.read(before, limit=1)[0].received_ms
    )


def _run_event(body: bytes) -> RunEvent | None:
    event = event_in(Kind.OPENLINEAGE, bytes(body))
    return event if isinstance(event, RunEvent) else None


def _event_of(event: RunEvent | None, seq: int = 0) -> MissingEvent | None:
    """A run event that may be missing; None if it is not a run event, or its time cannot be read."""
    if event is None:
        return None
    missing = MissingEvent(
        seq=seq, run_id=event.run.runId, event_type=str(event.eventType), event_time=event.eventTime
    )
    with contextlib.suppress(ValueError):
        _ = missing.time_us
        return missing
    return None
