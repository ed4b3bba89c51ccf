"""The facts about a file in an event that the graph and the summaries need."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from waybill.facets import EventType, RunEvent, parse_instant_us
from waybill.facets.flows import FlowNode, path_in, state_in

if TYPE_CHECKING:
    from waybill.facets import Event, FinalState
    from waybill.facets.event import DeltaFile, RunFacets
    from waybill.facets.flows import FlowPath


class Flow(NamedTuple):
    """Files that one summary stands for.

    Attributes:
        parent: the job of their parent runs, which Marquez makes part of the job's name.
        source: the system and data source of the files.
    """

    job: FlowNode
    parent: FlowNode | None
    source: FlowNode

    @property
    def job_in_marquez(self) -> FlowNode:
        """The job under the name that Marquez gives it."""
        job, parent = self.job, self.parent
        return job if parent is None else FlowNode(job.namespace, full_name(job.name, parent.name))


class FileEvent(NamedTuple):
    """One event of a file.

    Attributes:
        path: the file's path so far.
        state: how a path of the file ended; None while it has not, and if its end was only inferred.
        created_ms: when the file began, epoch milliseconds.
        completed_ms: when it ended or, while it has not, when the event happened; epoch milliseconds.
        size_bytes: how much was written, according to the outputs' statistics.
        cause: why it failed; empty if it did not.
    """

    flow: Flow
    run_id: str
    parent_run_id: str | None
    path: FlowPath
    state: FinalState | None
    created_ms: int
    completed_ms: int
    inputs: list[FlowNode]
    outputs: list[FlowNode]
    size_bytes: int
    cause: str = ""


def file_event_of(event: Event | None) -> FileEvent | None:
    """The facts about a file in an event; None if the event is not about a file."""
    path = path_in(event)
    facets = event.run.facets if isinstance(event, RunEvent) else None
    if path is None or not isinstance(event, RunEvent) or facets is None or facets.delta_file is None:
        return None
    file, parent, job = facets.delta_file, facets.parent, event.job
    try:
        completed_ms = parse_instant_us(file.completed or event.eventTime) // 1000
        created_ms = parse_instant_us(file.created or event.eventTime) // 1000
    except ValueError:
        return None
    parents = FlowNode(parent.job.namespace, parent.job.name) if parent is not None else None
    state, outputs = state_in(event), event.outputs or ()
    has_failed = state is not None and event.eventType is EventType.FAIL
    return FileEvent(
        flow=Flow(FlowNode(job.namespace, job.name), parents, path.source),
        run_id=event.run.runId,
        parent_run_id=parent.run.runId if parent is not None else None,
        path=path,
        state=state,
        created_ms=created_ms,
        completed_ms=completed_ms,
        inputs=[FlowNode(one.namespace, one.name) for one in event.inputs or ()],
        outputs=[FlowNode(one.namespace, one.name) for one in outputs],
        size_bytes=sum(output.size_bytes for output in outputs) if state is not None else 0,
        cause=_cause_of(facets, file) if has_failed else "",
    )


def _cause_of(facets: RunFacets, file: DeltaFile) -> str:
    if facets.error_message is not None and facets.error_message.text:
        return facets.error_message.text
    return (file.annotations or {}).get("errorCause", "")


def full_name(name: str, parent: str) -> str:
    """What Marquez calls the job `name` of a run whose parent is a run of the job `parent`."""
    if parent == name:
        parent = parent.rpartition(".")[0] if "." in parent else parent
    return f"{parent}.{name.removeprefix(f'{parent}.')}"
