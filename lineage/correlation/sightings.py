"""What entries of the journal say about files: which there are, what is known of them, and their parents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.facets import (
    SEVERITY,
    UNREADABLE,
    EventType,
    FinalState,
    fingerprints_of,
    inferred_reason,
    observe,
    parents_of,
    parse_instant_us,
)
from waybill.facets.record import EpochMs, NonEmpty
from waybill.transport.journal import Kind

if TYPE_CHECKING:
    from waybill.facets import RunEvent
    from waybill.facets.event import DeltaFile
    from waybill.transport.journal import Entry

_ENDED_AS: Final = {
    EventType.FAIL: FinalState.ERROR,
    EventType.ABORT: FinalState.CANCELLED,
    EventType.COMPLETE: FinalState.COMPLETE,
}


class Details(msgspec.Struct, frozen=True, omit_defaults=True, cache_hash=True):
    """What many files have in common.

    Attributes:
        process: the flow that they arrived by, or the name of their job.
        sinks: by which they left, sorted.
        states: how their paths ended, sorted, as far as their own pipeline says so.
        system: that processed them.
        inputs: of their events, each a namespace and a name with a slash between them, sorted.
        producers: of their events, sorted; none for DeltaFi's records.
    """

    process: str
    sinks: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    system: str = ""
    inputs: tuple[str, ...] = ()
    producers: tuple[str, ...] = ()

    def has_input(self, name: str) -> bool:
        """Whether an input is this dataset or, if the name has no slash, whether its name ends with this."""
        return name in self.inputs or (
            "/" not in name and any(one.rstrip("/").endswith(f"/{name}") for one in self.inputs)
        )


class Content(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What an event says about a file's content and its job's code.

    Attributes:
        version: of the job's code.
        fingerprint: of the content.
        input_size: of the file as it was stored, in bytes.
        is_forced: whether it was handled again on purpose although its content was known.
    """

    version: str | None = None
    fingerprint: str | None = None
    input_size: int | None = None
    is_forced: bool = False


class Sighting(msgspec.Struct, frozen=True, gc=False):
    """What one event or one record says about a file.

    Attributes:
        did: the file.
        parents: the files that it came from.
        details: what it has in common with others.
        filename: its name.
        at_ms: when it began, as far as this event knows; epoch milliseconds.
        last_ms: when this event happened or, of a record, when its path ended; epoch milliseconds.
        content: None if nothing is said about it.
    """

    did: str
    parents: tuple[str, ...]
    details: Details
    filename: str | None
    at_ms: int
    last_ms: int
    content: Content | None = None


def sightings_in(entries: Iterable[Entry], *, system_name: str) -> Iterator[Sighting]:
    """What each entry says; an entry that cannot be read says nothing.

    `system_name` is used for those that carry none and have no stamped one.
    """
    shared: _Shared = {}
    for entry in entries:
        stamped = entry.system_name or system_name
        try:
            if entry.kind is Kind.OPENLINEAGE:
                event = entry.run_event
                if event is not None and (seen := _of_event(event, stamped)) is not None:
                    yield seen
            elif entry.kind is Kind.PROVENANCE:
                yield from _of_records(_PATHS.decode(entry.body), stamped, shared)
        except UNREADABLE:
            continue  # the layout sets it aside


class _Path(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """What is read of a `SentRecord`: without the rest it takes half the time."""

    did: NonEmpty
    parent_did: str | None = None
    system_name: str | None = None
    data_source: str | None = None
    filename: str | None = None
    data_sink: str | None = None
    final_state: FinalState
    created: EpochMs
    completed: EpochMs


_PATHS: Final = msgspec.json.Decoder(list[_Path])

_Shared = dict[tuple[str | None, ...], Details]


def _of_records(records: Iterable[_Path], stamped: str, shared: _Shared) -> list[Sighting]:
    found: list[Sighting] = []
    for one in records:
        key = (one.data_source, one.data_sink, one.final_state, one.system_name or stamped)
        details = shared.get(key)
        if details is None:
            source, sink, state, system = key
            details = Details(source or "", (sink,) if sink else (), (str(state),), system or "")
            shared[key] = details
        parents = (one.parent_did,) if one.parent_did else ()
        found.append(Sighting(one.did, parents, details, one.filename or None, one.created, one.completed))
    return found


def _of_event(event: RunEvent, system_name: str) -> Sighting | None:
    """What an event says; None for the event of a summary, which is no file."""
    facets = event.run.facets
    if facets is not None and facets.summary:
        return None
    if facets is not None and facets.delta_file is not None:
        return _of_facet(event, facets.delta_file, system_name)
    return _of_run(event, system_name)


def _of_facet(event: RunEvent, facet: DeltaFile, system_name: str) -> Sighting:
    return Sighting(
        facet.did,
        parents_of(event),
        Details(
            facet.data_source or event.job.name,
            (facet.data_sink,) if facet.data_sink else (),
            _states(event, facet.final_state),
            facet.system_name or system_name,
            _inputs_of(event),
            (event.producer,),
        ),
        facet.filename or None,
        parse_instant_us(facet.created or event.eventTime) // 1_000,
        parse_instant_us(event.eventTime) // 1_000,
        _content_of(event),
    )


def _of_run(event: RunEvent, system_name: str) -> Sighting:
    """What an event without the facet says; as in its record, a tag or a property replaces a field."""
    run = observe(event, system_name=system_name)
    said = {field: one.value for field, one in run.overrides.items()}
    first = run.first_input
    sinks = {said["data_sink"]} if "data_sink" in said else {f"{a}/{b}" for a, b in run.outputs}
    return Sighting(
        said.get("did", run.run_id),
        parents_of(event),
        Details(
            said.get("data_source", event.job.name),
            tuple(sorted(sinks)),
            _states(event, said.get("final_state")),
            said.get("system_name", event.job.namespace),
            _inputs_of(event),
            (event.producer,),
        ),
        said.get("filename", None if first is None else first.name.rstrip("/").rpartition("/")[2]),
        run.created_us // 1_000,
        parse_instant_us(event.eventTime) // 1_000,
        _content_of(event),
    )


def _inputs_of(event: RunEvent) -> tuple[str, ...]:
    return tuple(sorted({f"{one.namespace}/{one.name}" for one in event.inputs or ()}))


def _states(event: RunEvent, said: str | None) -> tuple[str, ...]:
    """How a path ended, if the file's own pipeline says so."""
    if event.eventType not in SEVERITY or inferred_reason(event):
        return ()
    return (str(said or _ENDED_AS[event.eventType]),)


def _content_of(event: RunEvent) -> Content | None:
    """The version of the job, and fingerprint and size of the content; of several inputs, of one."""
    version = event.job.version
    seen = max(fingerprints_of(event), key=attrgetter("fingerprint"), default=None)
    if seen is not None:
        return Content(
            version=version, fingerprint=seen.fingerprint, input_size=seen.inputBytes, is_forced=seen.forced
        )
    return None if version is None else Content(version=version)
