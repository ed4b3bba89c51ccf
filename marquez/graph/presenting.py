"""Events as Marquez's page shows them best; what the journal stores stays as it was accepted.

- Marquez draws the job of a run with a parent in the state of the parent's job. So the end of such a run is
  sent once more without its parent, under the full name that Marquez gives the job. A file's events all go
  without it, because Marquez invents a run for a parent that is a child itself, and nobody ends that.
- Marquez takes the description of a job or a dataset from the last event that names it, and removes it if
  that event has none. So each event describes the jobs and the datasets of flows, if it does not do so
  itself.
- The button LOCATION of a job's page is the only link that a person can click. It comes from the last event
  too, so each event of a flow has the same link to the collector's records of the flow.
- Marquez removes the columns of a dataset when a run completes and one of its events names the dataset
  without a schema. So each event has the last known schema of what it writes.
- A sink of files is named as the dataset that it writes, with a symlink from the sink's name.

The run facet `waybill_presented` keeps the parent and the job's name, from which records of runs without the
facet of a file are derived. So an event gives the same record as before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from waybill.facets import (
    DATA_SINK,
    DELTA_FILE_FACET,
    PRESENTED_FACET,
    PRODUCER,
    SEVERITY,
    SUMMARY_FACET,
    EventType,
)
from waybill.facets.event import facet_schema_url

from ..envelope import envelope_of
from ..links import records_url
from .event_facets import Named, described, job_facets_of
from .names import Node, full_name, source_says
from .run_events import standard_facet

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .job_graph import JobGraph

_SCHEMA_URL: Final = facet_schema_url("WaybillPresentedRunFacet")
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)

_NULL: Final = msgspec.Raw(b"null")

Members = dict[str, msgspec.Raw]


class _OfFiles(msgspec.Struct, rename="camel"):
    """The facet of one file, or of a summary of many."""

    system_name: str | None = None
    data_source: str | None = None


class _Parent(msgspec.Struct):
    job: Named


class _RunFacets(msgspec.Struct):
    file: _OfFiles | None = msgspec.field(default=None, name=DELTA_FILE_FACET)
    summary: _OfFiles | None = msgspec.field(default=None, name=SUMMARY_FACET)
    parent: _Parent | None = None
    presented: object = msgspec.field(default=None, name=PRESENTED_FACET)


_MEMBERS: Final = msgspec.json.Decoder(Members)
_SOME_MEMBERS: Final = msgspec.json.Decoder(Members | None)
_MANY: Final = msgspec.json.Decoder(list[Members] | None)
_RUN_FACETS: Final = msgspec.json.Decoder(_RunFacets | None)
_NAMED: Final = msgspec.json.Decoder(Named)


def present(body: bytes, graph: JobGraph, *, collector_url: str = "") -> list[bytes]:
    """The events to send to Marquez for one, in this order; one that cannot be read is sent as it is.

    With `collector_url`, the jobs of flows link to the collector's records of their data source.
    """
    try:
        return _present(body, graph, collector_url)
    except _UNREADABLE:
        return [body]


def _present(body: bytes, graph: JobGraph, collector_url: str) -> list[bytes]:
    event = _MEMBERS.decode(body)
    if "run" not in event or "job" not in event:
        return [_changed(body, event, _present_datasets(event, graph, is_of_files=False))]
    run, job = _MEMBERS.decode(event["run"]), _MEMBERS.decode(event["job"])
    named = _NAMED.decode(event["job"])
    facets = _RUN_FACETS.decode(run.get("facets", b"null")) or _RunFacets()
    of_files, envelope = facets.file or facets.summary, envelope_of(body)
    changed = _present_datasets(event, graph, is_of_files=of_files is not None)
    if of_files is not None:
        source = Node(of_files.system_name or named.namespace, of_files.data_source or named.name)
        notes = job_facets_of(envelope) or graph.notes_of(source)
        says = described(source_says(source), notes)
        adds = {"documentation": _documentation("DocumentationJobFacet", says)}
        if collector_url:
            adds["sourceCodeLocation"] = _location(records_url(collector_url, *source))
        if _complete(job, adds):
            changed["job"] = _raw(job)
    told = _changed(body, event, changed)
    ends = EventType(envelope.type_name) in SEVERITY
    if facets.parent is None or facets.presented is not None or not (ends or of_files):
        return [told]
    of_run = _MEMBERS.decode(run["facets"])
    of_run[PRESENTED_FACET] = _raw(
        {
            "_producer": PRODUCER,
            "_schemaURL": _SCHEMA_URL,
            "jobName": named.name,
            "parent": of_run.pop("parent"),
        }
    )
    job["name"] = _raw(full_name(named.name, facets.parent.job.name))
    changed |= {"job": _raw(job), "run": _raw(run | {"facets": _raw(of_run)})}
    alone = _changed(body, event, changed)
    # The end with the parent ends the run that Marquez invents of a parent that it calls something else.
    return [alone] if of_files else [told, alone]


def _changed(body: bytes, event: Members, changed: Members) -> bytes:
    return msgspec.json.encode(event | changed) if changed else body


def _present_datasets(event: Members, graph: JobGraph, *, is_of_files: bool) -> Members:
    """Name, describe and complete the datasets of flows; returns the members of the event that changed."""
    changed: Members = {}
    for side in ("inputs", "outputs"):
        if side not in event:
            continue
        datasets = _MANY.decode(event[side]) or []
        is_changed = False
        for dataset in datasets:
            node = Node(*(msgspec.json.decode(dataset[member], type=str) for member in Node._fields))
            written, adds = node, Members()
            if is_of_files and b'"symlinks"' not in bytes(dataset.get("facets", b"")):
                written = graph.datasets.node_of(node)
            if written != node:
                dataset |= {member: _raw(value) for member, value in written._asdict().items()}
                adds["symlinks"] = _symlinks(node, graph.datasets.sinks_of(written))
            if says := graph.says(written):
                adds["documentation"] = _documentation("DocumentationDatasetFacet", says)
            if side == "outputs":
                adds |= graph.datasets.columns_of(written)
            is_changed |= _complete(dataset, adds) or written != node
        if is_changed:
            changed[side] = _raw(datasets)
    return changed


def _symlinks(named: Node, sinks: Iterable[Node]) -> msgspec.Raw:
    """The other names of a dataset: first the one that the event has, which its records keep."""
    names = dict.fromkeys([named, *sinks])
    identifiers = [{**name._asdict(), "type": DATA_SINK} for name in names]
    return _raw(standard_facet("1-0-1", "SymlinksDatasetFacet", identifiers=identifiers))


def _location(url: str) -> msgspec.Raw:
    """The link that is the button LOCATION of a job's page."""
    return _raw(standard_facet("1-0-1", "SourceCodeLocationJobFacet", type="waybill", url=url))


def _documentation(facet: str, says: str) -> msgspec.Raw:
    return _raw(standard_facet("1-1-0", facet, description=says))


def _complete(named: Members, adds: Mapping[str, msgspec.Raw]) -> bool:
    """Give a job or a dataset the facets that it lacks; returns whether it lacked any."""
    facets = _SOME_MEMBERS.decode(named.get("facets", b"null")) or {}
    lacking = {name: raw for name, raw in adds.items() if facets.get(name, _NULL) == _NULL}
    if lacking:
        named["facets"] = _raw(facets | lacking)
    return bool(lacking)


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
