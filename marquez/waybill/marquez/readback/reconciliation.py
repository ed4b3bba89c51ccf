"""Reconciliation: what the journal says was delivered, held against what the backend gives back.

Answers can be wrong and databases can be restored from yesterday. So the backend's events of a stretch of
time are read and compared with the journal's, each by its run, its instant and its type, because Marquez
gives events back in words of its own. What is missing can be sent again: like a replayed dead letter it goes
before anything new, and a finished run gets its terminal event last. Of events that went into a summary the
backend has the summary, which is looked for in place of the first of them.

The jobs of the graph that the backend was told of are asked for, too, each by its name: Marquez gives no
JobEvents back, but what came of them.
"""

from __future__ import annotations

import contextlib
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from waybill.facets import parse_instant_us
from waybill.marquez.acks import ROW_PREFIX, Acks
from waybill.marquez.delivery import OWED_PREFIX, dead_letters
from waybill.marquez.envelope import envelope_of
from waybill.marquez.graph import JOURNEY_PREFIX, Job, Node, row_key
from waybill.marquez.summaries import CoalescedEntries, summary_event
from waybill.transport.config import MARQUEZ
from waybill.transport.journal import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from waybill.marquez.readback.event_reader import EventReader
    from waybill.transport.journal import Journal


_RECONCILED: Final = "reconciled"


class MissingEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event that was delivered and that the backend does not have.

    Attributes:
        seq: its sequence number in the journal.
        run_id: its run.
        event_type: what it says of the run.
        event_time: when, as the event has it.
    """

    seq: int
    run_id: str
    event_type: str
    event_time: str


class MissingJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job of the graph that the backend was told of and does not have, or not with all its edges.

    Attributes:
        namespace: the system's name.
        name: ``<data source>.<transform>``.
    """

    namespace: str
    name: str


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True):
    """What a comparison found.

    Attributes:
        compared: how many delivered run events of the journal were looked for.
        missing: those that the backend does not have, in the order of the journal.
        compared_jobs: how many jobs of the graph were looked for.
        missing_jobs: those that the backend does not have.
    """

    compared: int
    missing: tuple[MissingEvent, ...]
    compared_jobs: int = 0
    missing_jobs: tuple[MissingJob, ...] = ()


class _RunEvent(NamedTuple):
    """What tells a run event from others, here and at the backend."""

    run_id: str
    event_type: str
    event_time: str
    time_us: int

    @property
    def identity(self) -> bytes:
        text = f"{self.run_id} {self.time_us} {self.event_type.upper()}"
        return blake2b(text.encode(), digest_size=16).digest()


def reconcile(
    journal: Journal, reader: EventReader, *, since_ms: int = 0, backend: str = MARQUEZ
) -> Reconciliation:
    """Compare what was delivered, run events and the jobs of the graph, with what the backend has.

    Args:
        journal: what was delivered.
        reader: gives back what the backend has.
        since_ms: only events that the journal accepted from then on, and jobs that the backend was told of
            from then on, epoch milliseconds. What it has forgotten after its retention is missing, too, so
            give less than that.
        backend: whose deliveries; the name of its projection.

    Raises:
        MarquezReadError: the backend cannot be read.
    """
    found = _compare(journal, reader, backend, _last_before(journal, since_ms), journal.last_seq())
    told = _told_jobs(journal, backend, since_ms)
    return msgspec.structs.replace(found, compared_jobs=len(told), missing_jobs=_forgotten(told, reader))


def reconcile_new(
    journal: Journal,
    reader: EventReader,
    *,
    since_ms: int = 0,
    backend: str = MARQUEZ,
    entries_at_once: int = 50_000,
) -> Iterator[Reconciliation]:
    """Compare what was delivered since the last time, some at a time, and send what is missing again.

    The jobs of the graph are compared each time, last of all; there is a result of its own where some are
    missing.

    Args:
        journal: what was delivered.
        reader: gives back what the backend has.
        since_ms: nothing that the journal accepted earlier is compared, epoch milliseconds.
        backend: whose deliveries; the name of its projection.
        entries_at_once: of how many entries each result tells.

    Raises:
        MarquezReadError: the backend cannot be read; the next time goes on from there.
    """
    after = max(int(journal.state_get(backend, _RECONCILED) or 0), _last_before(journal, since_ms))
    while after < (upto := min(after + entries_at_once, journal.cursor(backend))):
        found = _compare(journal, reader, backend, after, upto)
        repair(journal, found.missing, backend)
        journal.commit(backend, put={_RECONCILED: str(upto).encode()})
        after = upto
        yield found
    told = _told_jobs(journal, backend, since_ms)
    if jobs := _forgotten(told, reader):
        repair(journal, jobs, backend)
        yield Reconciliation(compared=0, missing=(), compared_jobs=len(told), missing_jobs=jobs)


def _compare(journal: Journal, reader: EventReader, backend: str, after: int, upto: int) -> Reconciliation:
    wanted: dict[bytes, int] = {}
    first_us, last_us, compared = 2**63, 0, 0
    for seq, event in _delivered(journal, backend, after, upto):
        compared += 1
        wanted.setdefault(event.identity, seq)
        first_us, last_us = min(first_us, event.time_us), max(last_us, event.time_us)
    if wanted:
        for bodies in reader.read(first_us, last_us + 1):
            for body in bodies:
                if (found := _run_event_of(body)) is not None:
                    wanted.pop(found.identity, None)
    missing = tuple(_missing(journal, backend, sorted(wanted.values())))
    return Reconciliation(compared=compared, missing=missing)


def repair(journal: Journal, missing: Sequence[MissingEvent | MissingJob], backend: str = MARQUEZ) -> None:
    """Let the backend have these again, before anything new; the home's runner sends them."""
    names = [
        row_key(Node(one.namespace, one.name)) if isinstance(one, MissingJob) else one.seq for one in missing
    ]
    journal.commit(backend, put={f"{OWED_PREFIX}{name}": b"" for name in names})


def _told_jobs(journal: Journal, backend: str, since_ms: int) -> list[Job]:
    """The jobs of the graph that the backend was told of, without those that it has still to be told of."""
    jobs = [msgspec.json.decode(row, type=Job) for row in journal.state(backend, JOURNEY_PREFIX).values()]
    return sorted((job for job in jobs if job.told_ms and job.told_ms >= since_ms), key=lambda job: job.node)


def _forgotten(told: Iterable[Job], reader: EventReader) -> tuple[MissingJob, ...]:
    return tuple(
        MissingJob(namespace=job.node.namespace, name=job.node.name)
        for job in told
        if not reader.draws(job.node, job.inputs, job.outputs)
    )


def _delivered(journal: Journal, backend: str, after: int, upto: int) -> Iterator[tuple[int, _RunEvent]]:
    acks = Acks(journal.cursor(backend), journal.state(backend, ROW_PREFIX))
    not_delivered = {letter.seq for letter in dead_letters(journal, backend)}
    owed = [key.removeprefix(OWED_PREFIX) for key in journal.state(backend, OWED_PREFIX)]
    not_delivered |= {int(one) for one in owed if not one.startswith(JOURNEY_PREFIX)}
    coalesced = CoalescedEntries(journal, backend)
    while entries := [entry for entry in journal.read(after) if entry.seq <= upto]:
        after = entries[-1].seq
        for entry in entries:
            if entry.kind is not Kind.OPENLINEAGE or entry.seq not in acks or entry.seq in not_delivered:
                continue
            body = entry.body if entry.seq not in coalesced else summary_event(journal, backend, entry.seq)
            if body is None:
                continue
            # JobEvents and DatasetEvents are left out: the backend does not give them back.
            if (event := _run_event_of(body)) is not None:
                yield entry.seq, event


def _last_before(journal: Journal, since_ms: int) -> int:
    """The last entry that was accepted before an instant; they are accepted in the order of time."""
    first = journal.first()
    low, high = (first.seq - 1 if first else 0), journal.last_seq()
    while low < high:
        middle = (low + high) // 2
        if journal.read(middle, limit=1)[0].received_ms < since_ms:
            low = middle + 1
        else:
            high = middle
    return low


def _run_event_of(body: bytes) -> _RunEvent | None:
    """What tells an event from others; None where it is no run event, or its time cannot be read."""
    envelope = envelope_of(body)
    event_type, event_time = envelope.event_type or "", envelope.event_time
    if envelope.run is None or not isinstance(event_type, str) or not isinstance(event_time, str):
        return None
    with contextlib.suppress(ValueError):
        return _RunEvent(envelope.run.run_id, event_type, event_time, parse_instant_us(event_time))
    return None


def _missing(journal: Journal, backend: str, seqs: Iterable[int]) -> Iterator[MissingEvent]:
    for seq in seqs:
        (entry,) = journal.read(seq - 1, limit=1)
        event = _run_event_of(summary_event(journal, backend, seq) or entry.body)
        if event is not None:
            yield MissingEvent(
                seq=seq, run_id=event.run_id, event_type=event.event_type, event_time=event.event_time
            )
