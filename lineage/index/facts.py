"""What entries of the journal say of files and no record can: more parents, inputs, contents, who sent it.

Records that come as such say all that is known of their files, so they give no facts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from waybill.facets import (
    SEVERITY,
    UNREADABLE,
    ProvenanceRecord,
    fingerprints_of,
    parents_of,
    parse_instant_us,
    record_so_far,
)
from waybill.facets.overrides import read_sayings

if TYPE_CHECKING:
    from waybill.facets import RunEvent
    from waybill.transport.journal import BegunTransforms, Entry
    from waybill.transport.runner import OpenRun


_NAMED_MAX: Final = 20


class Kind(StrEnum):
    """What a fact tells of a file."""

    PARENT = "parent"
    """The did of a file that it came from, beyond the one that its record names."""
    INPUT = "input"
    """A dataset that its run read, as a record shows it."""
    OUTPUT = "output"
    """A dataset that its run wrote; of a file, beyond the first."""
    JOB = "job"
    """The job of a run that is no file; empty: the run says itself of which file it tells."""
    PRODUCER = "producer"
    """The producer of an event of it."""
    VERSION = "version"
    """The version of the code of its job."""
    FINGERPRINT = "fingerprint"
    """The fingerprint of its content."""
    INPUT_BYTES = "input_bytes"
    """The size of the file as it was stored, in bytes."""
    FORCED = "forced"
    """It was handled again on purpose although its content was known."""
    OPEN = "open"
    """It has begun and not ended; only in what is published, with the values that its end has to repeat."""


class Fact(NamedTuple):
    """One thing that is known of a file.

    Attributes:
        did: the file.
        kind: what is told.
        value: what it is.
        at_ms: when the first event that told it happened, in epoch milliseconds.
        system: the system that processed the file.
    """

    did: str
    kind: Kind
    value: str
    at_ms: int
    system: str


class OpenFile(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a file or run that has begun and not ended: what its record would say now.

    Attributes:
        did: the file; for a run without the facet, the run.
        parent_did: the file that it was split from; for a run without the facet, its parent run.
        system_name: that of the file; for a run without the facet, the namespace of its job.
        data_source: where the file came in; for a run without the facet, its first input or else its job.
        filename: None for a run without the facet.
        annotations: those that it has so far, whether or not they are allowed in a record.
        transform: the last transform that it began, which it may be in the middle of; None: none was noted.
            For a run without the facet, its job.
        began_ms: when it began, as its events say, in epoch milliseconds.
        received_ms: when its first entry was received.
        last_ms: when its last entry was received.
    """

    did: str
    parent_did: str | None
    system_name: str
    data_source: str
    filename: str | None
    annotations: dict[str, str]
    transform: str | None = None
    began_ms: int
    received_ms: int
    last_ms: int


_Shown = TypeVar("_Shown", ProvenanceRecord, OpenFile)


class JobRun(msgspec.Struct, frozen=True):
    """A run that is no file, as it is shown: by its job, with all that it read and wrote."""

    job: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def shown(self, of: _Shown) -> _Shown:
        """What tells of it, with what people are shown in the place of the first input and of one output."""
        shown = msgspec.structs.replace(of, filename=self.job, data_source=_listed(self.inputs))
        if isinstance(shown, ProvenanceRecord):
            return msgspec.structs.replace(shown, data_sink=_listed(self.outputs) or None)
        return shown


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _NAMED_MAX:,} more" if len(names) > _NAMED_MAX else ""
    return f"{', '.join(names[:_NAMED_MAX])}{more}"


def shown_as(told: Iterable[_Shown], runs: Mapping[str, JobRun]) -> list[_Shown]:
    """Records or open files as people are shown them; `runs` has those, by did, that are no files."""
    return [runs[one.did].shown(one) if one.did in runs else one for one in told]


def as_plain(told: Iterable[ProvenanceRecord | OpenFile], runs: Mapping[str, JobRun]) -> list[dict[str, Any]]:
    """Records or open files as plain values; those of `runs`, by did, with what is said of a run."""
    return [msgspec.to_builtins(one) | msgspec.to_builtins(runs.get(one.did, {})) for one in told]


class Told(NamedTuple):
    """What one entry tells: facts of a file, whether its run goes on or has ended, what it is about to do.

    Attributes:
        run: the id of the run.
        at_us: when the event happened, in epoch microseconds.
        has_ended: whether the event ends the run.
        facts: the facts.
        entry: the entry.
        said: its event, or the transforms that it notes.
    """

    run: str
    at_us: int
    has_ended: bool
    facts: list[Fact]
    entry: Entry
    said: RunEvent | BegunTransforms


def told_in(entries: Iterable[Entry], *, system_name: str) -> Iterator[Told]:
    """What each entry of a run tells, in order; an entry that cannot be read tells nothing.

    `system_name` is used for those that carry none and have no stamped one.
    """
    for entry in entries:
        if (begun := entry.begun_transforms) is not None:
            yield Told(begun.run_id, 0, False, [], entry, begun)  # noqa: FBT003 - by their order
        event = entry.run_event
        if event is None or (event.run.facets is not None and event.run.facets.summary):
            continue
        try:
            at_us = parse_instant_us(event.eventTime)
            facts = list(_facts_of(event, at_us // 1_000, entry.system_name or system_name))
        except UNREADABLE:
            continue  # the layout sets it aside
        yield Told(event.run.runId, at_us, event.eventType in SEVERITY, facts, entry, event)


def _facts_of(event: RunEvent, at_ms: int, stamped: str) -> Iterator[Fact]:
    facets = event.run.facets
    file = None if facets is None else facets.delta_file
    if file is not None:
        did, system = file.did, file.system_name or stamped
        values: list[tuple[Kind, str]] = []
    else:
        said = {} if facets is None else {one.key: one.value for one in read_sayings(facets) if one.is_field}
        did, system = said.get("did", event.run.runId), said.get("system_name", event.job.namespace)
        values = [(Kind.JOB, "" if "filename" in said else event.job.name)]
    values.append((Kind.PRODUCER, event.producer))
    # A record has room for the first.
    values += [(Kind.PARENT, parent) for parent in parents_of(event)[1:] if parent != did]
    inputs = dict.fromkeys(one.text for one in event.inputs or ())
    values += [(Kind.INPUT, name) for name in inputs]
    values += [(Kind.OUTPUT, one.text) for one in (event.outputs or ())[0 if file is None else 1 :]]
    if event.job.version is not None:
        values.append((Kind.VERSION, event.job.version))
    for content in fingerprints_of(event):
        values.append((Kind.FINGERPRINT, content.fingerprint))
        if content.inputBytes is not None:
            values.append((Kind.INPUT_BYTES, str(content.inputBytes)))
        if content.forced:
            values.append((Kind.FORCED, "true"))
    for kind, value in values:
        yield Fact(did, kind, value, at_ms, system)


def open_file_of(begun: OpenRun, received_ms: int, last_ms: int) -> OpenFile:
    """The open file of a run that has begun, whose events are folded."""
    assert begun.told is not None  # noqa: S101 - they are
    file, began_ms = begun.delta_file, begun.told.created_us // 1_000
    if file is not None and file.created is not None:
        with contextlib.suppress(ValueError):
            began_ms = parse_instant_us(file.created) // 1_000
    said = file or record_so_far(begun.told, begun.name)
    return OpenFile(
        did=said.did,
        parent_did=said.parent_did or None,
        system_name=said.system_name or begun.system_name,
        data_source=said.data_source or begun.name,
        filename=None if file is None else file.filename,
        annotations=said.annotations or {},
        transform=begun.name if file is None else begun.transform,
        began_ms=began_ms,
        received_ms=received_ms,
        last_ms=last_ms,
    )
