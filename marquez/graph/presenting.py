"""Events as Marquez's page shows them best; what the journal stores stays as it was accepted.

- Marquez draws the job of a run with a parent in the state of the parent's job, and invents a run for a
  parent that it does not know or that is a child itself, which nobody ends. So the events of such a run are
  sent without the parent, under the full name that Marquez gives the job.
- Marquez takes the description of a job or a dataset from the last event that names it, and removes it if
  that event has none. So each event describes the jobs and the datasets of flows, if it does not do so
  itself.
- The button LOCATION of a job's page is the only link that a person can click. It comes from the last event
  too, so each event of a flow has the same link to the collector's records of the flow.
- Marquez removes the columns of a dataset when a run completes and one of its events names the dataset
  without a schema. So each event has the last known schema of what it writes.
- A sink of files is named as the dataset that it writes. Marquez lists each name in the facet `symlinks` as a
  dataset whose page is empty, so the facet `waybill_sinks` keeps the sink's name.
- Marquez adds up the columns of what is only read. Spark says of a file that it reads as lines, for example
  to find the columns of a CSV file, that it has the one column `value`; that is left out.

The run facet `waybill_presented` keeps the parent and the job's name, from which records of runs without the
facet of a file are derived. So an event gives the same record as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.facets import DATA_SINK, PRESENTED_FACET, PRODUCER, UNREADABLE, RunEvent
from waybill.facets.event import SINKS_FACET, RunFacets, facet_schema_url
from waybill.facets.flows import FlowNode, source_says
from waybill.facets.json_events import standard_facet
from waybill.facets.standard import job_notes_of, read_standard

from ..links import records_url
from .file_events import full_name

if TYPE_CHECKING:
    from waybill.facets import Event

    from .job_graph import JobGraph

_SCHEMA_URL: Final = facet_schema_url("WaybillPresentedRunFacet")

_NULL: Final = msgspec.Raw(b"null")
_SINK: Final = msgspec.Raw(f'"{DATA_SINK}"'.encode())

Members = dict[str, msgspec.Raw]


_MEMBERS: Final = msgspec.json.Decoder(Members)
_SOME_MEMBERS: Final = msgspec.json.Decoder(Members | None)
_MANY: Final = msgspec.json.Decoder(list[Members] | None)


def present(body: bytes, event: Event | None, graph: JobGraph, *, collector_url: str = "") -> bytes:
    """The event to send to Marquez for one; one that cannot be read is sent as it is.

    Args:
        body: the event.
        event: the same, decoded; None if it cannot be read.
        graph: what is known of flows and datasets.
        collector_url: the jobs of flows link to this collector's records of their data source.
    """
    if event is None:
        return body
    try:
        members = _MEMBERS.decode(body)
        if isinstance(event, RunEvent):
            return _present_run(body, event, members, graph, collector_url)
        return _changed(body, members, _present_datasets(members, graph))
    except UNREADABLE:  # a part that nobody else reads
        return body


def _present_run(
    body: bytes, event: RunEvent, members: Members, graph: JobGraph, collector_url: str
) -> bytes:
    facets = event.run.facets or RunFacets()
    source = _source_of(event, facets)
    changed = _present_datasets(members, graph)
    job = _MEMBERS.decode(members["job"])
    if source is not None:
        notes = job_notes_of(event.job) or graph.notes_of(source)
        says = notes.described(source_says(source))
        adds = {"documentation": _documentation("DocumentationJobFacet", says)}
        if collector_url:
            # The button LOCATION of the job's page.
            link = {"type": "waybill", "url": records_url(collector_url, *source)}
            adds["sourceCodeLocation"] = _raw(standard_facet("1-0-1", "SourceCodeLocationJobFacet", **link))
        if _complete(job, adds):
            changed["job"] = _raw(job)
    run = _MEMBERS.decode(members["run"])
    of_run = _SOME_MEMBERS.decode(run.get("facets", _NULL)) or {}
    # Another home may have presented it already.
    if facets.parent is None or PRESENTED_FACET in of_run:
        return _changed(body, members, changed)
    of_run[PRESENTED_FACET] = _raw(
        {
            "_producer": PRODUCER,
            "_schemaURL": _SCHEMA_URL,
            "jobName": event.job.name,
            "parent": of_run.pop("parent"),
        }
    )
    job["name"] = _raw(full_name(event.job.name, facets.parent.job.name))
    changed |= {"job": _raw(job), "run": _raw(run | {"facets": _raw(of_run)})}
    return _changed(body, members, changed)


def _source_of(event: RunEvent, facets: RunFacets) -> FlowNode | None:
    """The data source of the files that an event is about; None if it is about none."""
    if facets.delta_file is not None:
        system, source = facets.delta_file.system_name, facets.delta_file.data_source
    elif (summary := facets.read_summary()) is not None:
        system, source = summary.systemName, summary.dataSource
    else:
        return None
    return FlowNode(system or event.job.namespace, source or event.job.name)


def _changed(body: bytes, event: Members, changed: Members) -> bytes:
    return msgspec.json.encode(event | changed) if changed else body


def _present_datasets(event: Members, graph: JobGraph) -> Members:
    """Name, describe and complete the datasets of flows; returns the members of the event that changed."""
    changed: Members = {}
    for side in ("inputs", "outputs"):
        if side not in event:
            continue
        datasets = _MANY.decode(event[side]) or []
        is_changed = False
        for dataset in datasets:
            node = FlowNode(*(msgspec.json.decode(dataset[member], type=str) for member in FlowNode._fields))
            has_sinks = _move_sinks(dataset)
            written, adds = node if has_sinks else graph.datasets.node_of(node), Members()
            if written != node:
                dataset |= {member: _raw(value) for member, value in written._asdict().items()}
                identifiers = [{**node._asdict(), "type": DATA_SINK}]
                adds[SINKS_FACET] = _raw(
                    standard_facet("1-0-1", "SymlinksDatasetFacet", identifiers=identifiers)
                )
            if says := graph.says(written):
                adds["documentation"] = _documentation("DocumentationDatasetFacet", says)
            if side == "outputs":
                adds |= graph.datasets.columns_of(written)
            is_read_as_lines = side == "inputs" and _leave_out_lines(dataset)
            is_completed = _complete(dataset, adds)
            is_changed |= has_sinks or is_completed or written != node or is_read_as_lines
        if is_changed:
            changed[side] = _raw(datasets)
    return changed


def _leave_out_lines(dataset: Members) -> bool:
    """Leave out the schema of a file whose lines are read; returns whether it was."""
    facets = _SOME_MEMBERS.decode(dataset.get("facets", _NULL)) or {}
    schema = bytes(facets.get("schema", b""))
    columns = read_standard(schema).fields if b'"value"' in schema else None
    if [column.name for column in columns or ()] != ["value"]:
        return False
    dataset["facets"] = _raw({name: raw for name, raw in facets.items() if name != "schema"})
    return True


def _move_sinks(dataset: Members) -> bool:
    """Move the names of sinks out of the other names of a dataset; returns whether there are any."""
    if bytes(_SINK) not in bytes(dataset.get("facets", b"")):
        return False
    facets = _SOME_MEMBERS.decode(dataset["facets"]) or {}
    symlinks = _SOME_MEMBERS.decode(facets.pop("symlinks", _NULL)) or {}
    identifiers = _MANY.decode(symlinks.get("identifiers", _NULL)) or []
    sinks = [one for one in identifiers if one.get("type") == _SINK]
    if not sinks:
        return False
    others = [one for one in identifiers if one.get("type") != _SINK]
    named = {"symlinks": others, SINKS_FACET: sinks}
    facets |= {name: _raw(symlinks | {"identifiers": _raw(some)}) for name, some in named.items() if some}
    dataset["facets"] = _raw(facets)
    return True


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
