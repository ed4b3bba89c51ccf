"""The job graph: what Marquez draws of the flows that files pass, besides the runs that it is sent.

What the jobs and datasets of a flow are is said in `waybill.facets.flows`, for the graph of a home, too. The
backend learns about a job from its runs, one for the files of a minute. Each carries everything known
about the job, because in Marquez the last event replaces the earlier ones. No JobEvent is sent, because it
would remove the job's state from the page.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from waybill.facets.flows import FlowEdge, FlowNode, FlowPath, Step, StepKind, sink_says, source_says
from waybill.facets.json_events import standard_facet
from waybill.facets.standard import JobNotes

from .datasets import Datasets, digest_of
from .run_events import counts, run_event, window_of
from .windows import WINDOW_MS, Window

if TYPE_CHECKING:
    from waybill.facets import FinalState, ProvenanceRecord
    from waybill.facets.event import OutputDataset
    from waybill.transport.journal import BegunTransforms, Entry

    from .file_events import FileEvent

JOURNEY_PREFIX: Final = "job:"

EDGES_MAX: Final = 20_000
"""More than any system of flows has; where each file has a name of its own, the graph stops growing here."""

LEARNED_FOR_MS: Final = 10_000
"""A path that was learned is not looked at again for so long: most files take the path of the last one."""
PATHS_MAX: Final = 10_000
"""How many learned paths are remembered."""

BEGUN_MAX: Final = 20_000
"""Of so many beginnings of transforms the times are remembered; beyond that the oldest is forgotten."""

NOTE_AFTER_MS: Final = 60_000
"""A job's facets change at most so often, because several emitters may disagree about it for ever."""

_NO_NOTES: Final = JobNotes()


class Outcome(NamedTuple):
    """How a path ended, and when it began what; epoch milliseconds.

    Attributes:
        state: None: it has not ended, or its end was only inferred.
        begun_ms: when it began its transforms, in order; None where that is not known.
    """

    state: FinalState | None = None
    cause: str = ""
    created_ms: int = 0
    completed_ms: int = 0
    begun_ms: tuple[int | None, ...] = ()

    def span_ms(self, place: int, kind: StepKind) -> tuple[int, int]:
        """When the path began its job at a place, from 0, and left it; as much as that may be, if unknown."""
        if kind is StepKind.SPLIT:
            return self.completed_ms, self.completed_ms
        began_ms, next_ms = (
            self.begun_ms[at] if at < len(self.begun_ms) else None for at in (place, place + 1)
        )
        ended_ms = self.completed_ms if next_ms is None else next_ms
        return min(self.created_ms if began_ms is None else began_ms, ended_ms), ended_ms


def outcome_of_record(record: ProvenanceRecord) -> Outcome:
    """How the path of the file in one of DeltaFi's records ended."""
    cause = (record.annotations or {}).get("errorCause", "")
    return Outcome(record.final_state, cause, record.created, record.completed)


class Job(msgspec.Struct):
    """One job of the graph, as it is stored.

    Attributes:
        step: its place in the flow.
        told_ms: when all of this was sent to the backend, epoch milliseconds; 0: not yet.
        open: the window that is being counted.
        closed: the window to send, or in flight.
        last: the window that was sent last.
    """

    node: FlowNode
    step: Step
    inputs: set[FlowNode] = msgspec.field(default_factory=set)
    outputs: set[FlowNode] = msgspec.field(default_factory=set)
    notes: JobNotes = _NO_NOTES
    told_ms: int = 0
    open: Window | None = None
    closed: Window | None = None
    last: Window | None = None

    @property
    def extent(self) -> tuple[int, JobNotes]:
        """A value that changes whenever more is known about the job."""
        return len(self.inputs) + len(self.outputs), self.notes

    def datasets(self, edge: FlowEdge) -> set[FlowNode]:
        """The inputs or the outputs, to which an edge belongs."""
        return self.outputs if edge.is_output else self.inputs

    def note(self, notes: JobNotes, now_ms: int) -> bool:
        """Take in facets of the job; returns whether the backend must get them."""
        if not notes or notes == self.notes:
            return False
        if self.notes and now_ms - self.told_ms < NOTE_AFTER_MS:
            return False
        self.notes, self.told_ms = notes, 0
        return True

    def close(self) -> None:
        """Close the window, so that it can be sent."""
        self.closed, self.open = self.open, None


class _Learned(NamedTuple):
    until_ms: int
    jobs: list[Job]
    """The jobs that the path passed, in order, as far as they are drawn."""


class JobGraph:
    """The graph, and the part of it that must still be sent to the backend.

    Args:
        rows: the stored jobs by key.
        journal_node: the journal's id, a part of the ids of runs.
        datasets: the stored datasets by key.
    """

    def __init__(
        self,
        rows: Mapping[str, bytes],
        journal_node: str = "",
        datasets: Mapping[str, bytes] | None = None,
    ) -> None:
        self.datasets: Final = Datasets(datasets or {})
        stored = [msgspec.json.decode(row, type=Job) for row in rows.values()]
        self._journal_node = journal_node
        self._jobs = {job.node: job for job in stored}
        self._nodes = list(self._jobs)
        self._numbers = {node: -number for number, node in enumerate(self._nodes, 1)}
        self._telling: dict[FlowNode, tuple[int, JobNotes]] = {}
        self._learned: dict[tuple[FlowPath, JobNotes], _Learned] = {}
        self._begun_ms: dict[int, int] = {}
        self._edges = sum(len(job.inputs) + len(job.outputs) for job in stored)
        self._changed: set[FlowNode] = set()
        self._flush_seq = 0
        self._notes: dict[FlowNode, JobNotes] = {}
        self._outputs: set[FlowNode] = set()
        for job in stored:
            self._outputs |= job.outputs
            self._notes[job.step.source] = job.notes or self._notes.get(job.step.source, _NO_NOTES)
            if job.step.kind is StepKind.SPLIT:
                self._notes |= dict.fromkeys(job.outputs - self._notes.keys(), _NO_NOTES)
            if job.open is not None and job.closed is None:
                job.close()
                self._changed.add(job.node)
        self._counting = {job.node for job in stored if job.open is not None}

    def untold(self) -> list[FlowNode]:
        """The jobs with a window to send."""
        return [node for node, job in self._jobs.items() if job.closed is not None]

    def number(self, node: FlowNode) -> int:
        """A number below 0 for a job, used where events have their sequence numbers."""
        return self._numbers[node]

    def node(self, number: int) -> FlowNode:
        """The job that a number stands for."""
        return self._nodes[-number - 1]

    def learn_datasets(self, outputs: Iterable[OutputDataset]) -> None:
        """Learn of the datasets in an event's outputs, and draw sinks as the datasets that they write."""
        for before, written in self.datasets.learn(outputs).items():
            self._learned.clear()
            for job in self._jobs.values():
                for side in (job.inputs, job.outputs):
                    if before in side:
                        side.remove(before)
                        side.add(written)
                        job.told_ms = 0
                        self._changed.add(job.node)

    def learn(self, path: FlowPath, now_ms: int, notes: JobNotes = _NO_NOTES) -> list[Job]:
        """Add one path, and notes about the job of its files; returns the jobs that it passed.

        Of these, only those that are drawn.
        """
        learned = self._learned.get((path, notes))
        if learned is not None and now_ms < learned.until_ms:
            return learned.jobs
        for sink_edge in path.edges():
            edge = sink_edge._replace(dataset=self.datasets.node_of(sink_edge.dataset))
            node = edge.job.node
            job = self._jobs.get(node)
            if job is None or edge.dataset not in job.datasets(edge):
                if self._edges >= EDGES_MAX:
                    continue
                self._edges += 1
                job = job or self._begin(node, edge.job)
                job.datasets(edge).add(edge.dataset)
                if edge.is_output:
                    self._outputs.add(edge.dataset)
                self._notes.setdefault(path.source, _NO_NOTES)
                job.told_ms = 0
                self._changed.add(node)
            if path.parent_job != edge.job and job.note(notes, now_ms):
                self._notes[path.source] = job.notes
                self._changed.add(node)
        jobs = [self._jobs[step.node] for step in path.steps if step.node in self._jobs]
        if len(self._learned) >= PATHS_MAX:
            self._learned.clear()
        self._learned[path, notes] = _Learned(now_ms + LEARNED_FOR_MS, jobs)
        return jobs

    def note_begun(self, begun: BegunTransforms, at_ms: int) -> None:
        """Note when (epoch milliseconds) a path began a transform; the Tracker tells that before its end."""
        if begun.count != len(begun.names):
            return
        if len(self._begun_ms) >= BEGUN_MAX:
            del self._begun_ms[next(iter(self._begun_ms))]  # it is not empty
        self._begun_ms.setdefault(hash((begun.run_id, begun.names)), at_ms)

    def begun_ms(self, run_id: str, transforms: tuple[str, ...]) -> tuple[int | None, ...]:
        """When the path of a file began each of these transforms; None where that is not known."""
        counts = range(1, len(transforms) + 1)
        return tuple(self._begun_ms.get(hash((run_id, transforms[:count]))) for count in counts)

    def outcome_of(self, event: FileEvent) -> Outcome:
        """How the path of the file in one event ended."""
        begun_ms = self.begun_ms(event.run_id, event.path.transforms) if event.state is not None else ()
        return Outcome(event.state, event.cause, event.created_ms, event.completed_ms, begun_ms)

    def count(self, jobs: list[Job], outcome: Outcome, entry: Entry) -> None:
        """Count a path at the jobs that it passed, once it has ended."""
        if outcome.state is None:
            return
        for place, job in enumerate(jobs):
            if job.open is None:
                job.open = Window(entry.seq, entry.received_ms, entry.received_ms)
                self._counting.add(job.node)
            state = outcome.state if place == len(jobs) - 1 else None
            job.open.add(state, outcome.cause, entry.received_ms, outcome.span_ms(place, job.step.kind))
            self._changed.add(job.node)

    def flush(self, seq: int) -> None:
        """Send everything that was counted before an entry without delay."""
        self._flush_seq = seq

    @property
    def held_back(self) -> int:
        """How many windows must be sent without delay, but wait for the previous one of their job."""
        windows = (self._jobs[node].open for node in self._counting)
        return sum(window is not None and window.seq < self._flush_seq for window in windows)

    def due(self, now_ms: int, *, caught_up: bool) -> list[FlowNode]:
        """Close the windows that are due, and return their jobs.

        A job that is new or has changed is due as soon as all waiting entries are read. While a window of a
        job is not delivered, the next one grows.
        """
        closed = []
        for node in sorted(self._counting):
            job = self._jobs[node]
            if job.open is None or job.closed is not None:
                continue
            is_full = job.open.last_ms - job.open.first_ms >= WINDOW_MS
            is_old = caught_up and not 0 <= now_ms - job.open.first_ms < WINDOW_MS
            if job.open.seq < self._flush_seq or is_full or is_old or (caught_up and not job.told_ms):
                job.close()
                self._counting.discard(node)
                self._changed.add(node)
                closed.append(node)
        return closed

    def wait_s(self, now_ms: int) -> float | None:
        """In how many seconds a window is due; None: not before something new is read."""
        first_ms = [
            job.open.first_ms
            for job in map(self._jobs.__getitem__, self._counting)
            if job.open is not None and job.closed is None
        ]
        return max(min(first_ms) + WINDOW_MS - now_ms, 0) / 1000 if first_ms else None

    def says(self, dataset: FlowNode) -> str:
        """A description of a dataset of the graph; empty for any other."""
        job = self._jobs.get(dataset)
        if job is not None:
            return job.step.dataset_says
        if dataset in self._notes:
            return source_says(dataset)
        if sinks := self.datasets.sinks_of(dataset):
            return " ".join(map(sink_says, sinks))
        return sink_says(dataset) if dataset in self._outputs else ""

    def draws(self, step: Step) -> bool:
        """Whether there is a job for a step."""
        return step.node in self._jobs

    def split_into(self, source: FlowNode) -> set[FlowNode]:
        """The data sources whose files were split into files of this one."""
        steps = (job.step for job in self._jobs.values() if source in job.outputs)
        return {step.source for step in steps if step.kind is StepKind.SPLIT}

    def notes_of(self, source: FlowNode) -> JobNotes:
        """The known facts about the jobs of a data source."""
        return self._notes.get(source, _NO_NOTES)

    def _begin(self, node: FlowNode, step: Step) -> Job:
        self._nodes.append(node)
        self._numbers[node] = -len(self._nodes)
        return self._jobs.setdefault(node, Job(node, step))

    def told(self, node: FlowNode, now_ms: int) -> JobNotes:
        """Note that the backend took or refused the last `event` of a job; returns the facts in it."""
        job = self._jobs[node]
        extent = self._telling.pop(node)
        job.told_ms = now_ms if extent == job.extent else 0
        job.last, job.closed = job.closed, None
        self._changed.add(node)
        return extent[1]

    def changed(self) -> Iterator[tuple[str, bytes]]:
        """The key and the row of each job that has changed since the last call."""
        for node in self._changed:
            yield row_key(node), msgspec.json.encode(self._jobs[node], order="deterministic")
        self._changed.clear()

    def forgotten(self, keys: Collection[str], now_ms: int) -> list[FlowNode]:
        """Queue the last run of these jobs again, because the backend lacks it; `keys` are those of rows."""
        nodes = [node for node in self._jobs if row_key(node) in keys]
        for node in nodes:
            job = self._jobs[node]
            job.closed = job.closed or job.last or Window(0, now_ms, now_ms)
            self._changed.add(node)
        return nodes

    def event(self, node: FlowNode) -> bytes | None:
        """The end event of a job's closed window; None if there is none."""
        job = self._jobs[node]
        if job.closed is None:
            return None
        self._telling[node] = job.extent
        window, step = job.closed, job.step
        summary = {
            "systemName": step.source.namespace,
            "dataSource": step.source.name,
            "transform": step.flow or str(step.kind).lower(),
            "events": window.count,
            "records": window.count,
            "passed": window.passed or None,
            "bytes": 0,
            "dataSinks": [],
            **window_of(*window.span_ms),
            **counts(window.states),
        }
        return run_event(
            window.run_id(self._journal_node, node),
            {**node._asdict(), "facets": _facets(step, job.notes)},
            summary,
            cause=window.cause,
            inputs=[self._dataset(dataset) for dataset in sorted(job.inputs)],
            outputs=[self._dataset(dataset) for dataset in sorted(job.outputs)],
            facets={},
        )

    def _dataset(self, node: FlowNode) -> dict[str, object]:
        """A dataset; it is described each time, or Marquez forgets that."""
        facet = standard_facet("1-1-0", "DocumentationDatasetFacet", description=self.says(node))
        return {**node._asdict(), "facets": {"documentation": facet}}


def row_key(node: FlowNode) -> str:
    """The state key of a job."""
    return f"{JOURNEY_PREFIX}{digest_of(node)}"


def _facets(step: Step, notes: JobNotes) -> dict[str, dict[str, object]]:
    """A job's facets: all of them each time, because Marquez drops those of the last version."""
    says = notes.described(step.job_says)
    job_type = {"processingType": "BATCH", "integration": "WAYBILL", "jobType": str(step.kind)}
    facets = {
        "documentation": standard_facet("1-1-0", "DocumentationJobFacet", description=says),
        "jobType": standard_facet("2-0-4", "JobTypeJobFacet", **job_type),
    }
    if notes.owners:
        facets["ownership"] = standard_facet("1-0-1", "OwnershipJobFacet", owners=notes.owners)
    if notes.tags:
        facets["tags"] = standard_facet("1-0-0", "TagsJobFacet", tags=notes.tags)
    return facets
