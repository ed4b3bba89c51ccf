"""What entries of the journal say about files: which there are, what is known of them, and their parents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypedDict

import msgspec

from waybill.facets import (
    SEVERITY,
    UNREADABLE,
    EventType,
    FinalState,
    ProvenanceRecord,
    RunEvent,
    decode_event,
    decode_records,
    fingerprints_of,
    inferred_reason,
    observe,
    parents_of,
    parse_instant_us,
)
from waybill.transport.journal import Kind

if TYPE_CHECKING:
    from waybill.facets.event import DeltaFile
    from waybill.transport.journal import Entry

_ENDED_AS: Final = {
    EventType.FAIL: FinalState.ERROR,
    EventType.ABORT: FinalState.CANCELLED,
    EventType.COMPLETE: FinalState.COMPLETE,
}


class Sighting(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one event or one record says about a file.

    Attributes:
        did: the file.
        parents: the files that it came from.
        process: the flow that it arrived by, or the name of its job.
        at_ms: when it began, as far as this event knows; epoch milliseconds.
        state: how a path ended, if the file's own pipeline says so.
        sinks: by which it left.
        version: of the job's code.
        fingerprint: of its content.
        input_size: of the file as it was stored, in bytes.
        is_forced: whether it was handled again on purpose although its content was known.
    """

    did: str
    parents: tuple[str, ...]
    system: str
    process: str
    filename: str | None
    at_ms: int
    state: str | None = None
    sinks: tuple[str, ...] = ()
    version: str | None = None
    fingerprint: str | None = None
    input_size: int | None = None
    is_forced: bool = False


def sightings_in(entries: Iterable[Entry], *, system_name: str) -> Iterator[Sighting]:
    """What each entry says; an entry that cannot be read says nothing.

    `system_name` is used for those that carry none and have no stamped one.
    """
    for entry in entries:
        stamped = entry.system_name or system_name
        try:
            if entry.kind is Kind.OPENLINEAGE:
                event = decode_event(entry.body)
                if isinstance(event, RunEvent) and (seen := _of_event(event, stamped)) is not None:
                    yield seen
            elif entry.kind is Kind.PROVENANCE:
                yield from [_of_record(one) for one in decode_records(entry.body, system_name=stamped)]
        except UNREADABLE:
            continue  # the layout sets it aside


def _of_record(record: ProvenanceRecord) -> Sighting:
    return Sighting(
        did=record.did,
        parents=(record.parent_did,) if record.parent_did else (),
        system=record.system_name,
        process=record.data_source,
        filename=record.filename or None,
        at_ms=record.created,
        state=record.final_state,
        sinks=(record.data_sink,) if record.data_sink else (),
    )


def _of_event(event: RunEvent, system_name: str) -> Sighting | None:
    """What an event says; None for the event of a summary, which is no file."""
    facets = event.run.facets
    if facets is not None and facets.summary:
        return None
    if facets is not None and facets.delta_file is not None:
        return _of_facet(event, facets.delta_file, system_name)
    return _of_run(event, system_name)


def _of_facet(event: RunEvent, facet: DeltaFile, system_name: str) -> Sighting:
    is_end = event.eventType in SEVERITY and not inferred_reason(event)
    return Sighting(
        did=facet.did,
        parents=parents_of(event),
        system=facet.system_name or system_name,
        process=facet.data_source or event.job.name,
        filename=facet.filename or None,
        at_ms=parse_instant_us(facet.created or event.eventTime) // 1_000,
        state=facet.final_state or _ENDED_AS[event.eventType] if is_end else None,
        sinks=(facet.data_sink,) if facet.data_sink else (),
        **_content_of(event),
    )


def _of_run(event: RunEvent, system_name: str) -> Sighting:
    """What an event without the facet says; as in its record, a tag or a property replaces a field."""
    run = observe(event, system_name=system_name)
    said = {field: one.value for field, one in run.overrides.items()}
    first = run.first_input
    is_end = event.eventType in SEVERITY and not inferred_reason(event)
    return Sighting(
        did=said.get("did", run.run_id),
        parents=parents_of(event),
        system=said.get("system_name", event.job.namespace),
        process=said.get("data_source", event.job.name),
        filename=said.get("filename", None if first is None else first.name.rstrip("/").rpartition("/")[2]),
        at_ms=run.created_us // 1_000,
        state=said.get("final_state", _ENDED_AS[event.eventType]) if is_end else None,
        sinks=(said["data_sink"],) if "data_sink" in said else tuple(f"{a}/{b}" for a, b in run.outputs),
        **_content_of(event),
    )


class _Content(TypedDict, total=False):
    version: str
    fingerprint: str
    input_size: int | None
    is_forced: bool


def _content_of(event: RunEvent) -> _Content:
    """The version of the job, and fingerprint and size of the content; of several inputs, of one."""
    found: _Content = {}
    if (version := _version_of(event.job.facets)) is not None:
        found["version"] = version
    seen = max(fingerprints_of(event), key=attrgetter("fingerprint"), default=None)
    if seen is not None:
        found |= {"fingerprint": seen.fingerprint, "input_size": seen.inputBytes, "is_forced": seen.forced}
    return found


class _CodeLocation(msgspec.Struct, frozen=True):
    version: str | None = None


class _JobFacets(msgspec.Struct, frozen=True):
    code: _CodeLocation | None = msgspec.field(default=None, name="sourceCodeLocation")


_JOB_FACETS: Final = msgspec.json.Decoder(_JobFacets)


def _version_of(facets: msgspec.Raw) -> str | None:
    """The version in the standard job facet `sourceCodeLocation`."""
    if b"sourceCodeLocation" not in bytes(facets):
        return None
    try:
        code = _JOB_FACETS.decode(facets).code
    except UNREADABLE:
        return None
    return None if code is None else code.version
