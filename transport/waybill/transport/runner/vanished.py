"""The runs of programs that are gone: the runner ends them, since nobody else will.

An emitter notes itself in the journal's state before its first entry, and each of its entries names it. While
any program is noted, the runner follows the entries and keeps, for each run that is open, which program spoke
of it last. It ends the runs of a program that is gone by an event that is marked as inferred: the run's own
terminal event, should one come later, replaces that.

- Before a program's runs are ended, its spool is adopted and everything up to then is read.
- A run that an unknown sender speaks of as well (over HTTP, say) is nobody's, and is never ended.
- Nor is one of a scheduler, whose runs outlive the process that tells of them.
- A file of the Tracker that its program left open when it ended by itself has said all there is to say.
"""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waybill.facets import DELTA_FILE_FACET, INFERRED_FACET, PRODUCER
from waybill.facets.event import JobFacets, facet_schema_url
from waybill.transport.journal import Kind, adopt
from waybill.transport.programs import Program

if TYPE_CHECKING:
    from collections.abc import Collection

    from waybill.transport.journal import Entry, Journal

REASON: Final = "the program that ran it is gone"

_NAME: Final = "programs"
_PROGRAM: Final = "program:"
_RUN: Final = "run:"
_CURSOR: Final = "cursor"
_ENTRIES_AT_ONCE: Final = 2_000
_BYTES_AT_ONCE: Final = 8 * 2**20
_OPEN_MAX: Final = 100_000
"""Further runs are not followed; a program that begins so many and ends none is broken."""
_ENDS: Final = frozenset({"COMPLETE", "ABORT", "FAIL"})
_SCHEDULERS: Final = frozenset({"AIRFLOW", "DAGSTER"})
_SCHEMA_URL: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACET_URL: Final = facet_schema_url("WaybillInferredRunFacet")


class _Noted(msgspec.Struct, frozen=True, array_like=True):
    """A program: the journal's last entry when it was noted, and whether it ended by itself."""

    after: int
    has_left: bool = False


class _Job(msgspec.Struct):
    namespace: str
    name: str
    facets: JobFacets | None = None


class _RunFacets(msgspec.Struct):
    parent: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    file: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw, name=DELTA_FILE_FACET)


class _RunOfEvent(msgspec.Struct, rename="camel"):
    run_id: str
    facets: _RunFacets | None = None


class _Event(msgspec.Struct, rename="camel"):
    run: _RunOfEvent
    job: _Job
    event_type: str


class _OpenRun(msgspec.Struct, frozen=True, array_like=True):
    """A run that has begun and not ended: whose it is, and what its end has to repeat of it."""

    program: str
    system_name: str
    run_id: str
    namespace: str
    name: str
    parent: bytes = b""
    file: bytes = b""

    def end(self, now_ms: int) -> bytes:
        """The event that ends it."""
        facets: dict[str, Any] = {
            INFERRED_FACET: {"_producer": PRODUCER, "_schemaURL": _FACET_URL, "reason": REASON}
        }
        if self.parent:
            facets["parent"] = msgspec.Raw(self.parent)
        if self.file:
            facets[DELTA_FILE_FACET] = msgspec.Raw(self.file)
        at = datetime.fromtimestamp(now_ms / 1_000, UTC).isoformat(timespec="milliseconds")
        return msgspec.json.encode(
            {
                "eventTime": at.replace("+00:00", "Z"),
                "eventType": "ABORT",
                "producer": PRODUCER,
                "schemaURL": _SCHEMA_URL,
                "run": {"runId": self.run_id, "facets": facets},
                "job": {"namespace": self.namespace, "name": self.name},
            }
        )


def note_program(journal: Journal, program: Program, *, has_left: bool = False) -> None:
    """Note a program of whose entries the first is about to be kept, or that it ends by itself."""
    # Read first: should another thread note the program meanwhile, its entries come after this one.
    after, key = journal.last_seq(), f"{_PROGRAM}{program}"
    if (known := journal.state_get(_NAME, key)) is not None:
        after = _NOTED.decode(known).after
    journal.commit(_NAME, put={key: msgspec.msgpack.encode(_Noted(after, has_left))}, durable=False)


class VanishedPrograms:
    """Follows the open runs of a home's programs, and ends those of the programs that are gone."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._open: dict[str, _OpenRun] | None = None
        self._cursor = 0
        self._gone: dict[str, _Noted] = {}
        """Programs that are gone, whose runs are ended once everything up to `_upto` is read."""
        self._upto = 0
        self.waits = False
        """Whether a program that can still be found to be gone has a run open."""

    def look(self, now_ms: int) -> bool:
        """Do a bounded piece of work; returns whether there is more to do at once.

        Raises:
            JournalError: the journal cannot be read or written; the same call tries it again.
        """
        noted = {
            key.removeprefix(_PROGRAM): _NOTED.decode(value)
            for key, value in self._journal.state(_NAME, _PROGRAM).items()
        }
        if not noted:
            self._open, self.waits = None, False
            return False
        if not self._gone:
            gone = {name: one for name, one in noted.items() if Program.parse(name).is_gone}
            if gone:
                adopt(self._journal)
                self._upto, self._gone = self._journal.last_seq(), gone
        behind = self._follow(min(one.after for one in noted.values()))
        if self._gone and self._cursor >= self._upto:
            self._end_runs(now_ms)
        told_of = {run.program for run in (self._open or {}).values()}
        self.waits = any(Program.parse(name).is_of_here for name in told_of)
        return behind

    def _follow(self, after: int) -> bool:
        """Read the entries that follow; returns whether there are more."""
        if self._open is None:
            stored = self._journal.state(_NAME, _RUN)
            self._open = {key.removeprefix(_RUN): _OPEN.decode(value) for key, value in stored.items()}
            self._cursor = int(self._journal.state_get(_NAME, _CURSOR) or 0)
        # What came while no program was noted is of none.
        self._cursor = max(self._cursor, after)
        entries = self._journal.read(self._cursor, limit=_ENTRIES_AT_ONCE, max_bytes=_BYTES_AT_ONCE)
        if not entries:
            return False
        before = dict(self._open)
        for entry in entries:
            if entry.kind is Kind.OPENLINEAGE and (entry.program is not None or self._open):
                self._take(entry, self._open)
        self._cursor = entries[-1].seq
        put = {
            _RUN + key: msgspec.msgpack.encode(run)
            for key, run in self._open.items()
            if before.get(key) != run
        }
        delete = [_RUN + key for key in before.keys() - self._open.keys()]
        put[_CURSOR] = str(self._cursor).encode()
        self._journal.commit(_NAME, put=put, delete=delete, durable=False)
        return self._cursor < self._journal.last_seq()

    @staticmethod
    def _take(entry: Entry, runs: dict[str, _OpenRun]) -> None:
        try:
            event = _EVENT.decode(entry.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return  # an event of no run, or of one that does not follow the schema
        key = blake2b(event.run.run_id.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
        job_type = event.job.facets.job_type if event.job.facets is not None else None
        is_scheduled = job_type is not None and job_type.integration.upper() in _SCHEDULERS
        if event.event_type.upper() in _ENDS or entry.program is None or is_scheduled:
            runs.pop(key, None)
        elif key in runs:
            runs[key] = msgspec.structs.replace(runs[key], program=entry.program)
        elif len(runs) < _OPEN_MAX:
            facets = event.run.facets or _RunFacets()
            runs[key] = _OpenRun(
                entry.program,
                entry.system_name,
                event.run.run_id,
                event.job.namespace,
                event.job.name,
                bytes(facets.parent),
                bytes(facets.file),
            )

    def _end_runs(self, now_ms: int) -> None:
        """End the runs of the programs that are gone, and forget these."""
        runs = self._open or {}
        gone = {key: run for key, run in runs.items() if run.program in self._gone}
        ended = [run for run in gone.values() if not (run.file and self._gone[run.program].has_left)]
        self._journal.append_many([(Kind.OPENLINEAGE, run.end(now_ms), run.system_name) for run in ended])
        self._forget(gone)

    def _forget(self, gone: Collection[str]) -> None:
        delete = [*(_RUN + key for key in gone), *(_PROGRAM + name for name in self._gone)]
        self._journal.commit(_NAME, delete=delete, durable=False)
        self._open = {key: run for key, run in (self._open or {}).items() if key not in gone}
        self._gone = {}


_NOTED: Final = msgspec.msgpack.Decoder(_Noted)
_OPEN: Final = msgspec.msgpack.Decoder(_OpenRun)
_EVENT: Final = msgspec.json.Decoder(_Event)
