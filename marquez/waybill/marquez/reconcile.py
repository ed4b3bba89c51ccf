"""Reconciliation: what the journal says was delivered, held against what the backend gives back.

Answers can be wrong and databases can be restored from yesterday. So the backend's events of a stretch of
time are read and compared with the journal's, each by its run, its instant and its type, because Marquez
gives events back in words of its own. What is missing can be sent again: like a replayed dead letter it goes
before anything new, and a finished run gets its terminal event last. Of events that went into a summary the
backend has the summary, which is looked for in place of the first of them.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.facets.event import parse_instant_us
from waybill.marquez.coalescing import summary_event
from waybill.marquez.ledger import ROW_PREFIX, Ledger
from waybill.marquez.letters import OWED_PREFIX, dead_letters
from waybill.marquez.marks import Marks
from waybill.transport.backends import MARQUEZ
from waybill.transport.journal import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from waybill.marquez.events import EventReader
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


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True):
    """What a comparison found.

    Attributes:
        compared: how many delivered run events of the journal were looked for.
        missing: those that the backend does not have, in the order of the journal.
    """

    compared: int
    missing: tuple[MissingEvent, ...]


class _Run(msgspec.Struct, rename="camel"):
    run_id: str


class _Said(msgspec.Struct, rename="camel"):
    """What tells an event from others, here and there."""

    event_time: str
    run: _Run
    event_type: str | None = None

    @property
    def time_us(self) -> int:
        return parse_instant_us(self.event_time)

    @property
    def identity(self) -> bytes:
        text = f"{self.run.run_id} {self.time_us} {(self.event_type or '').upper()}"
        return blake2b(text.encode(), digest_size=16).digest()


_DECODER: Final = msgspec.json.Decoder(_Said)


def reconcile(
    journal: Journal, reader: EventReader, *, since_ms: int = 0, backend: str = MARQUEZ
) -> Reconciliation:
    """Compare the run events that were delivered with those that the backend has.

    Args:
        journal: what was delivered.
        reader: gives back what the backend has.
        since_ms: only events that the journal accepted from then on, epoch milliseconds. Those that the
            backend has forgotten after its retention are missing, too, so give less than that.
        backend: whose deliveries; the name of its projection.

    Raises:
        MarquezReadError: the backend cannot be read.
    """
    return _compare(journal, reader, backend, _last_before(journal, since_ms), journal.last_seq())


def reconcile_new(
    journal: Journal,
    reader: EventReader,
    *,
    since_ms: int = 0,
    backend: str = MARQUEZ,
    entries_at_once: int = 50_000,
) -> Iterator[Reconciliation]:
    """Compare what was delivered since the last time, some at a time, and send what is missing again.

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


def _compare(journal: Journal, reader: EventReader, backend: str, after: int, upto: int) -> Reconciliation:
    wanted: dict[bytes, int] = {}
    first_us, last_us, compared = 2**63, 0, 0
    for seq, said in _delivered(journal, backend, after, upto):
        compared += 1
        wanted.setdefault(said.identity, seq)
        first_us, last_us = min(first_us, said.time_us), max(last_us, said.time_us)
    if wanted:
        for bodies in reader.read(first_us, last_us + 1):
            for body in bodies:
                wanted.pop(_decode(body, seq=0).identity, None)
    return Reconciliation(
        compared=compared, missing=tuple(_missing(journal, backend, seq) for seq in sorted(wanted.values()))
    )


def repair(journal: Journal, missing: Sequence[MissingEvent], backend: str = MARQUEZ) -> None:
    """Let the backend have these events again, before anything new; the home's runner sends them."""
    journal.commit(backend, put={f"{OWED_PREFIX}{one.seq}": b"" for one in missing})


def _delivered(journal: Journal, backend: str, after: int, upto: int) -> Iterator[tuple[int, _Said]]:
    ledger = Ledger(journal.cursor(backend), journal.state(backend, ROW_PREFIX))
    not_there = {letter.seq for letter in dead_letters(journal, backend)}
    not_there |= {int(key.removeprefix(OWED_PREFIX)) for key in journal.state(backend, OWED_PREFIX)}
    marks = Marks(journal, backend)
    while entries := [entry for entry in journal.read(after) if entry.seq <= upto]:
        after = entries[-1].seq
        for entry in entries:
            if entry.kind is not Kind.OPENLINEAGE or entry.seq not in ledger or entry.seq in not_there:
                continue
            body = entry.body if entry.seq not in marks else summary_event(journal, backend, entry.seq)
            if body is None:
                continue
            try:
                said = _decode(body, entry.seq)
            except ValueError:
                continue  # a JobEvent or DatasetEvent, which the backend does not give back
            yield entry.seq, said


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


def _decode(body: bytes, seq: int) -> _Said:
    """What tells an event from others.

    Raises:
        ValueError: it is no run event, or its time cannot be read.
    """
    try:
        said = _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"entry {seq} is no run event: {error}") from None
    _ = said.time_us
    return said


def _missing(journal: Journal, backend: str, seq: int) -> MissingEvent:
    (entry,) = journal.read(seq - 1, limit=1)
    said = _decode(summary_event(journal, backend, seq) or entry.body, seq)
    return MissingEvent(
        seq=seq, run_id=said.run.run_id, event_type=said.event_type or "", event_time=said.event_time
    )
