"""Reconciliation: what was delivered, compared with what the backend gives back.

Answers can be wrong, and databases can be restored from yesterday's backup. So the backend's events of a
period are read and compared with the journal's, each by its run, its instant and its type, because Marquez
re-serialises the events. What is missing can be sent again: like a replayed dead letter it goes before
anything new, and a finished run gets its terminal event last. In place of events that were coalesced, their
summary is looked for.

The jobs of the graph are compared too, each by its name: Marquez does not give JobEvents back, but it does
give the jobs.
"""

from __future__ import annotations

import contextlib
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

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
        event_type: as the event has it, as is the time; empty where it has none.
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
        """What tells the event from others, in the journal and at the backend."""
        text = f"{self.run_id} {self.time_us} {self.event_type.upper()}"
        return blake2b(text.encode(), digest_size=16).digest()


class MissingJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job of the graph, ``<data source>.<transform>``, that the backend lacks, or some edges of it."""

    namespace: str
    name: str


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a comparison.

    Attributes:
        compared: how many delivered run events of the journal were looked for; `compared_jobs` likewise.
        missing: those that the backend does not have, in the order of the journal.
    """

    compared: int
    missing: tuple[MissingEvent, ...]
    compared_jobs: int = 0
    missing_jobs: tuple[MissingJob, ...] = ()


def reconcile(
    journal: Journal, reader: EventReader, *, since_ms: int = 0, backend: str = MARQUEZ
) -> Reconciliation:
    """Compare what was delivered, run events and the jobs of the graph, with what the backend has.

    Only events that the journal accepted from `since_ms` on (epoch milliseconds), and jobs that the backend
    was told of from then on. What the backend has deleted after its retention counts as missing, so do not
    look back further than that.

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
    """Compare what was delivered since the last time, in batches, and send what is missing again.

    The jobs of the graph are compared each time, last of all; they have a result of their own where some are
    missing.

    Nothing that the journal accepted before `since_ms` (epoch milliseconds) is compared. Each result covers
    `entries_at_once` entries.

    Raises:
        MarquezReadError: the backend cannot be read; the next call goes on from there.
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
    for event in _delivered(journal, backend, after, upto):
        compared += 1
        wanted.setdefault(event.identity, event.seq)
        first_us, last_us = min(first_us, event.time_us), max(last_us, event.time_us)
    if wanted:
        for bodies in reader.read(first_us, last_us + 1):
            for found in filter(None, map(_event_of, bodies)):
                wanted.pop(found.identity, None)
    missing = []
    for seq in sorted(wanted.values()):
        body = summary_event(journal, backend, seq) or journal.read(seq - 1, limit=1)[0].body
        missing.append(_event_of(body, seq))
    return Reconciliation(compared=compared, missing=tuple(filter(None, missing)))


def repair(journal: Journal, missing: Sequence[MissingEvent | MissingJob], backend: str = MARQUEZ) -> None:
    """Have the home's runner send these again, before anything new."""
    names = [
        row_key(Node(one.namespace, one.name)) if isinstance(one, MissingJob) else one.seq for one in missing
    ]
    journal.commit(backend, put={f"{OWED_PREFIX}{name}": b"" for name in names})


def _told_jobs(journal: Journal, backend: str, since_ms: int) -> list[Job]:
    """The jobs of the graph of which the backend was told all that is known."""
    jobs = [msgspec.json.decode(row, type=Job) for row in journal.state(backend, JOURNEY_PREFIX).values()]
    return sorted((job for job in jobs if job.told_ms and job.told_ms >= since_ms), key=lambda job: job.node)


def _forgotten(told: Iterable[Job], reader: EventReader) -> tuple[MissingJob, ...]:
    return tuple(
        MissingJob(namespace=job.node.namespace, name=job.node.name)
        for job in told
        if not reader.draws(job.node, job.inputs, job.outputs)
    )


def _delivered(journal: Journal, backend: str, after: int, upto: int) -> Iterator[MissingEvent]:
    acks = Acks(journal.cursor(backend), journal.state(backend, ROW_PREFIX))
    not_delivered = {letter.seq for letter in dead_letters(journal, backend)}
    not_delivered |= {poison.seq for poison in journal.poison.all(backend)}
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
            if (event := _event_of(body, entry.seq)) is not None:
                yield event


def _last_before(journal: Journal, since_ms: int) -> int:
    """The last entry that was accepted before an instant; later entries are never accepted earlier."""
    first = journal.first()
    low, high = (first.seq - 1 if first else 0), journal.last_seq()
    while low < high:
        middle = (low + high) // 2
        if journal.read(middle, limit=1)[0].received_ms < since_ms:
            low = middle + 1
        else:
            high = middle
    return low


def _event_of(body: bytes, seq: int = 0) -> MissingEvent | None:
    """A run event that may be missing; None where it is none, or its time cannot be read."""
    envelope = envelope_of(body)
    event_type, event_time = envelope.event_type or "", envelope.event_time
    if envelope.run is None or not isinstance(event_type, str) or not isinstance(event_time, str):
        return None
    event = MissingEvent(seq=seq, run_id=envelope.run.run_id, event_type=event_type, event_time=event_time)
    with contextlib.suppress(ValueError):
        _ = event.time_us
        return event
    return None
