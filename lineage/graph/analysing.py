"""Events that wait for the analyzers, and what these found.

An event of a job is analyzed once for all that have the same job facets, datasets and schemas. Its findings
are kept, so that the edges from them are as if each of these events had told them. An event that could not be
read by accident is kept, too, to be read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec

from waybill.facets import JobEvent, RunEvent
from waybill.facets.event import OutputDataset, RunDataset, RunJob, read_facet

from ..analyzers import EVENT_BYTES_MAX, Finding
from .elements import Seen, number_of

if TYPE_CHECKING:
    import apsw

    from waybill.facets import Event

    from ..analyzers import Result

ANALYSIS_SCHEMA: Final = """
CREATE TABLE analysis (
    key INTEGER PRIMARY KEY,
    event BLOB NOT NULL,
    findings BLOB NOT NULL,
    problem TEXT NOT NULL,
    state INTEGER NOT NULL,
    first_us INTEGER NOT NULL,
    last_hour INTEGER NOT NULL,
    run TEXT NOT NULL
) STRICT;
CREATE INDEX analysis_state ON analysis (state, key) WHERE state <> 1;
"""


class AnalysisState(IntEnum):
    """How far an event is with the analyzers."""

    WAITING = 0
    READ = 1
    CUT = 2
    """What they found was more than is kept."""
    FAILED = 3
    """An accident kept them from reading it."""


_LOAD: Final = "SELECT findings, first_us, last_hour, run FROM analysis WHERE key = ?"
_PUT: Final = "INSERT INTO analysis VALUES (?, ?, x'', '', 0, ?, ?, ?)"
_SAW: Final = "UPDATE analysis SET first_us = ?, last_hour = ?, run = ? WHERE key = ?"
_DONE: Final = """
UPDATE analysis SET event = iif(?1 = 3, event, x''), state = ?1, findings = ?2, problem = ?3 WHERE key = ?4
"""
_AGAIN: Final = "UPDATE analysis SET state = 0 WHERE state = 3"
_WAITING: Final = "SELECT key, event FROM analysis WHERE state = 0 ORDER BY key LIMIT ?"


class _Schema(msgspec.Struct):
    schema: msgspec.Raw = msgspec.Raw()


class _Found(msgspec.Struct):
    """The job event that an analyzer found, as far as it said it."""

    job: RunJob
    inputs: tuple[RunDataset, ...] = ()
    outputs: tuple[OutputDataset, ...] = ()


class FoundEvent(NamedTuple):
    """What one analyzer found, as an event."""

    event: JobEvent
    analyzer: str
    confidence: float


class Analyses:
    """The events of a database that are to be analyzed, or have been; every call is within a transaction."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def put(self, event: Event, body: bytes, seen: Seen) -> tuple[list[FoundEvent], Seen] | None:
        """Note that an event is to be analyzed; if it has been and is seen anew, what was found, and when."""
        key = _key_of(event)
        row = self._connection.execute(_LOAD, (key,)).fetchone()
        if row is None:
            self._connection.execute(_PUT, (key, body, *seen))
            return None
        findings, *times = cast("tuple[Any, ...]", row)
        known = Seen(*times)
        if (merged := known.merge(seen)) == known:
            return None
        self._connection.execute(_SAW, (*merged, key))
        return (_events_of(findings), merged) if findings else None

    def list_waiting(self, limit: int) -> list[tuple[int, bytes]]:
        """Some of the events that are to be analyzed, each with its key."""
        return cast("list[tuple[int, bytes]]", self._connection.execute(_WAITING, (limit,)).fetchall())

    def try_again(self) -> None:
        """Have the events read once more that were not, by accident."""
        self._connection.execute(_AGAIN)

    def settle(self, result: Result) -> tuple[list[FoundEvent], Seen] | None:
        """Keep what was found in an event; returns it with when the event was seen."""
        key, findings = int(result.key), result.findings
        row = self._connection.execute(_LOAD, (key,)).fetchone()
        if row is None:
            return None
        said = [f"{one.analyzer}: {told}" for one in findings if (told := one.problem or one.cut)]
        state = AnalysisState.CUT if any(one.cut for one in findings) else AnalysisState.READ
        if result.is_accident:
            state = AnalysisState.FAILED
        body = _FINDINGS_ENCODER.encode(findings)
        self._connection.execute(_DONE, (state, body, result.problem or "; ".join(said), key))
        _, *times = cast("tuple[Any, ...]", row)
        return _events_of(body), Seen(*times)


def is_to_analyze(event: Event, body: bytes, facets: tuple[str, ...] | None) -> bool:
    """Whether analyzers that read these facets may find something: not in an event of a tracked file.

    Nor is an event read that is larger than they take.

    Args:
        event: the event.
        body: it as JSON.
        facets: the keys of the facets; None: they read every event.
    """
    if len(body) > EVENT_BYTES_MAX or facets == ():
        return False
    if isinstance(event, RunEvent):
        run_facets = event.run.facets
        if run_facets is not None and (run_facets.delta_file is not None or run_facets.summary):
            return False
    if not isinstance(event, RunEvent | JobEvent) or not (event.inputs or event.outputs or event.job.facets):
        return False
    return facets is None or any(b'"%b"' % key.encode() in body for key in facets)


def _key_of(event: Event) -> int:
    """A number that is the same for all events in which analyzers find the same."""
    assert isinstance(event, RunEvent | JobEvent)  # noqa: S101 - `is_to_analyze`
    datasets = [
        (is_output, one.namespace, one.name, (read_facet(_SCHEMA, one.facets) or _Schema()).schema)
        for is_output, side in enumerate((event.inputs, event.outputs))
        for one in side or ()
    ]
    return number_of(
        msgspec.json.encode((event.job.namespace, event.job.name, event.job.facets, datasets)).decode()
    )


def _events_of(findings: bytes) -> list[FoundEvent]:
    return [
        FoundEvent(event, one.analyzer, one.confidence)
        for one in _FINDINGS.decode(findings)
        for event in _event_of(one.event)
    ]


def _event_of(body: bytes) -> Iterator[JobEvent]:
    found = read_facet(_FOUND, msgspec.Raw(body)) if body else None
    if found is not None:
        yield JobEvent(eventTime="", job=found.job, producer="", inputs=found.inputs, outputs=found.outputs)


_SCHEMA: Final = msgspec.json.Decoder(_Schema)
_FOUND: Final = msgspec.json.Decoder(_Found)
_FINDINGS: Final = msgspec.msgpack.Decoder(tuple[Finding, ...])
_FINDINGS_ENCODER: Final = msgspec.msgpack.Encoder()
