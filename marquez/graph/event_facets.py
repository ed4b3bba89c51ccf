"""The facts about a file in an event that the graph and the summaries need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from waybill.facets import EventType, FinalState, RunEvent, parse_instant_us

from .names import Node, full_name

if TYPE_CHECKING:
    from waybill.facets import Event
    from waybill.facets.event import DeltaFile, RunFacets

_ENDS: Final = {
    EventType.COMPLETE: FinalState.COMPLETE,
    EventType.FAIL: FinalState.ERROR,
    EventType.ABORT: FinalState.CANCELLED,
}


class Flow(NamedTuple):
    """Files that one summary stands for.

    Attributes:
        parent: the job of their parent runs, which Marquez makes part of the job's name.
        source: the system and data source of the files.
    """

    job: Node
    parent: Node | None
    source: Node

    @property
    def job_in_marquez(self) -> Node:
        """The job under the name that Marquez gives it."""
        job, parent = self.job, self.parent
        return job if parent is None else Node(job.namespace, full_name(job.name, parent.name))


class FileEvent(NamedTuple):
    """One event of a file.

    Attributes:
        comes_from: the job of the file that it was split from.
        state: how a path of the file ended; None while it has not, and if its end was only inferred.
        created_ms: when the file began, epoch milliseconds.
        completed_ms: when it ended or, while it has not, when the event happened; epoch milliseconds.
        size_bytes: how much was written, according to the outputs' statistics.
        cause: why it failed; empty if it did not.
    """

    flow: Flow
    run_id: str
    parent_run_id: str | None
    comes_from: Node | None
    state: FinalState | None
    created_ms: int
    completed_ms: int
    transforms: tuple[str, ...]
    sink: str | None
    inputs: list[Node]
    outputs: list[Node]
    size_bytes: int
    cause: str = ""


def file_event_of(event: Event | None) -> FileEvent | None:
    """The facts about a file in an event; None if the event is not about a file."""
    facets = event.run.facets if isinstance(event, RunEvent) else None
    if not isinstance(event, RunEvent) or facets is None or facets.delta_file is None:
        return None
    file, parent, job = facets.delta_file, facets.parent, event.job
    try:
        completed_ms = parse_instant_us(file.completed or event.eventTime) // 1000
        created_ms = parse_instant_us(file.created or event.eventTime) // 1000
    except ValueError:
        return None
    end = None if facets.inferred is not None else _ENDS.get(event.eventType)
    parents = Node(parent.job.namespace, parent.job.name) if parent is not None else None
    is_of_file = parent is not None and parent.run.runId == file.parent_did
    source = Node(file.system_name or job.namespace, file.data_source or job.name)
    outputs = event.outputs or ()
    return FileEvent(
        flow=Flow(Node(job.namespace, job.name), parents, source),
        run_id=event.run.runId,
        parent_run_id=parent.run.runId if parent is not None else None,
        comes_from=parents if is_of_file else None,
        state=end and (file.final_state or end),
        created_ms=created_ms,
        completed_ms=completed_ms,
        transforms=tuple(file.transforms or ()),
        sink=file.data_sink if end else None,
        inputs=[Node(one.namespace, one.name) for one in event.inputs or ()],
        outputs=[Node(one.namespace, one.name) for one in outputs],
        size_bytes=sum(output.size_bytes for output in outputs) if end else 0,
        cause=_cause_of(facets, file) if end is FinalState.ERROR else "",
    )


def _cause_of(facets: RunFacets, file: DeltaFile) -> str:
    if facets.error_message is not None and facets.error_message.text:
        return facets.error_message.text
    return (file.annotations or {}).get("errorCause", "")
