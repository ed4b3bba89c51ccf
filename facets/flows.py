"""The flows that files pass: the jobs and datasets of a file's path, wherever they are drawn.

A file's run belongs to one job, which is named after its data source. So it does not show the way through the
transforms. Its flow does: each transform of a data source is a job, and what lies between two transforms is a
dataset.

    orders ─▶ [decompress · orders] ─▶ decompress · orders ─▶ [load · orders] ─▶ warehouse

- A transform belongs to its data source, so two sources that share a transform remain two flows.
- The data source and the data sinks are datasets, the same ones that the Tracker's runs read and write; a
  sink is the dataset that it writes, if that is known.
- A file that was split ends in a job of its own, whose output is the children's data source.
- A path without transforms is one job; a path that ended early just ends.

Marquez's page shows the first 16 characters of a job's name and the first 15 of a dataset's. So a name begins
with what tells a job from the others of its flow, and ends with the data source:

    validate · orders       the transform `validate` of the files of `orders`, and what they are after it
    (split) · orders        where files of `orders` are split
    (to lake) · orders      what goes from `orders` to the sink `lake` without a transform
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from .event import SEVERITY, RunEvent
from .folding import FINAL_STATES, has_record
from .record import UNREADABLE, FinalState, decode_records

if TYPE_CHECKING:
    from .event import Event
    from .record import ProvenanceRecord

_BETWEEN: Final = " · "


class FlowNode(NamedTuple):
    """A job or a dataset of a flow."""

    namespace: str
    name: str


class StepKind(StrEnum):
    """What a job does to files."""

    TRANSFORM = "TRANSFORM"
    SPLIT = "SPLIT"
    DIRECT = "DIRECT"


class Step(NamedTuple):
    """One job of a flow.

    Attributes:
        source: the data source of the files.
        flow: the transform, or the sink of a path without any; empty where files are split.
    """

    source: FlowNode
    kind: StepKind
    flow: str = ""

    @property
    def node(self) -> FlowNode:
        """The job's namespace and name."""
        flow = self.flow.replace(_BETWEEN, _BETWEEN * 2)
        if self.kind is StepKind.SPLIT:
            first = "(split)"
        elif self.kind is StepKind.DIRECT:
            first = f"(to {flow})"
        else:
            first = f"({flow}" if flow.startswith("(") else flow
        return FlowNode(self.source.namespace, f"{first}{_BETWEEN}{self.source.name}")

    @property
    def job_says(self) -> str:
        """A description of the job."""
        files = f"files of the data source {self.source.name}"
        if self.kind is StepKind.SPLIT:
            return f"Splits {files} into others."
        if self.kind is StepKind.DIRECT:
            return f"Brings {files} to {self.flow}."
        return f"The transform {self.flow} of {files}."

    @property
    def dataset_says(self) -> str:
        """A description of what comes out of the job, unless that is a sink or another data source."""
        return f"Files of the data source {self.source.name} that have passed {self.flow}."


class FlowEdge(NamedTuple):
    """A job reads a dataset, or writes it."""

    job: Step
    dataset: FlowNode
    is_output: bool


class FlowPath(NamedTuple):
    """The known path of one file.

    Attributes:
        parent: the data source of the file it was split from.
        written: the dataset that its sink writes; None: it is not told.
    """

    source: FlowNode
    transforms: tuple[str, ...] = ()
    sink: str | None = None
    is_split: bool = False
    parent: FlowNode | None = None
    written: FlowNode | None = None

    @property
    def parent_job(self) -> Step | None:
        """The job that wrote its data source by splitting another file; None if there is none."""
        return Step(self.parent, StepKind.SPLIT) if self.parent is not None else None

    @property
    def steps(self) -> list[Step]:
        """The jobs that the file passed, in their order."""
        steps = [Step(self.source, StepKind.TRANSFORM, one) for one in self.transforms]
        if self.is_split:
            steps.append(Step(self.source, StepKind.SPLIT))
        elif self.sink and not steps:
            steps.append(Step(self.source, StepKind.DIRECT, self.sink))
        return steps

    def edges(self) -> Iterator[FlowEdge]:
        """The part of the graph that the path shows."""
        if self.parent_job is not None:
            yield FlowEdge(self.parent_job, self.source, is_output=True)
        here, steps = self.source, self.steps
        for step in steps:
            yield FlowEdge(step, here, is_output=False)
            if step is not steps[-1]:
                here = step.node
                yield FlowEdge(step, here, is_output=True)
            elif self.sink and not self.is_split:
                sink = self.written or FlowNode(self.source.namespace, self.sink)
                yield FlowEdge(step, sink, is_output=True)


def path_in(event: Event | None) -> FlowPath | None:
    """The path of the file that an event is about, as far as the file has come; None if it is about none."""
    facets = event.run.facets if isinstance(event, RunEvent) else None
    if not isinstance(event, RunEvent) or facets is None or facets.delta_file is None:
        return None
    file, parent, state = facets.delta_file, facets.parent, state_in(event)
    source = FlowNode(file.system_name or event.job.namespace, file.data_source or event.job.name)
    split_from = None
    if parent is not None and parent.run.runId == file.parent_did:
        split_from = FlowNode(parent.job.namespace, parent.job.name)
    sink = file.data_sink if state is not None else None
    outputs = event.outputs or () if sink else ()
    written = next(
        (FlowNode(one.namespace, one.name) for one in outputs if (source.namespace, sink) in one.sinks), None
    )
    return FlowPath(source, file.transforms or (), sink, state is FinalState.SPLIT, split_from, written)


def state_in(event: RunEvent) -> FinalState | None:
    """How a path of a file ended with an event; None: it has not, or its end was only inferred."""
    if not has_record(event):
        return None
    facets = event.run.facets
    told = facets.delta_file.final_state if facets is not None and facets.delta_file is not None else None
    return told or FINAL_STATES[SEVERITY[event.eventType]]


def paths_in_records(body: bytes, system_name: str) -> list[tuple[FlowPath, ProvenanceRecord]]:
    """The paths of the files in DeltaFi's records; none if they cannot be read, see `decode_records`.

    A record does not name the data source of its parent.
    """
    try:
        records = decode_records(body, system_name=system_name)
    except UNREADABLE:
        return []
    return [(_path_of(record), record) for record in records]


def _path_of(record: ProvenanceRecord) -> FlowPath:
    source = FlowNode(record.system_name, record.data_source)
    is_split = record.final_state is FinalState.SPLIT
    return FlowPath(source, record.transforms, record.data_sink, is_split)


def source_says(source: FlowNode) -> str:
    """A description of the files of a data source."""
    return f"Files of the data source {source.name}."


def sink_says(sink: FlowNode) -> str:
    """A description of a data sink."""
    return f"The data sink {sink.name}."
