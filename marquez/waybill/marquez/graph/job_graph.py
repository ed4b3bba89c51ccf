"""The job graph: what Marquez draws of the flows that files pass, besides the runs that it is sent.

A run in Marquez belongs to one job, so it does not show a file's way through its transforms. The graph does:
each transform of a data source is a job, and what lies between two transforms is a dataset.

    orders ─▶ [orders.decompress] ─▶ orders.decompress ─▶ [orders.load] ─▶ warehouse

- Names follow OpenLineage's ``{parent}.{task}``: a transform belongs to its data source, so that two sources
  that share a transform stay two flows, and nothing seems to come from where it does not.
- The data source and the data sinks are datasets, the same that the Tracker's runs read and write.
- A file that was split ends in the job ``<data source>.split``, whose output is the children's data source.
- A path without transforms is one job named after its sink; a path that ended on its way just ends.

The backend is told by JobEvents. Each carries all that is known of a job, because for Marquez the last one
replaces those before.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from waybill.facets import PRODUCER, UNREADABLE, FinalState, decode_records
from waybill.marquez.graph.event_facets import JobFacets, Node, job_facets_of
from waybill.transport.journal import Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from waybill.marquez.envelope import Envelope
    from waybill.marquez.graph.event_facets import FileEvent
    from waybill.transport.journal import Entry

JOURNEY_PREFIX: Final = "job:"

EDGES_MAX: Final = 20_000
"""More than any system of flows has; where each file has a name of its own, the graph stops growing here."""

RENEW_AFTER_MS: Final = 86_400_000
"""A job that is still in use is told again after a day, because Marquez forgets what it does not hear of."""

LEARNED_FOR_MS: Final = 10_000
"""A path that was learned is not looked at again for so long: most files take the path of the last one."""
PATHS_MAX: Final = 10_000
"""How many learned paths are remembered."""

NOTE_AFTER_MS: Final = 60_000
"""A job's facets change at most so often, because several emitters may disagree about it for ever."""

SPLIT: Final = "split"

OPENLINEAGE_SPEC: Final = "https://openlineage.io/spec"


class Edge(NamedTuple):
    """A job reads a dataset, or writes it."""

    job: Node
    dataset: Node
    is_output: bool


class Path(NamedTuple):
    """What is known of one file's path.

    Attributes:
        parent: the data source of the file it was split from.
        notes: what else is known of the jobs of its data source.
    """

    source: Node
    transforms: tuple[str, ...] = ()
    sink: str | None = None
    is_split: bool = False
    parent: Node | None = None
    notes: JobFacets = JobFacets()

    @property
    def parent_job(self) -> Node | None:
        """The job that wrote its data source by splitting another file; None where none did."""
        return split_of(self.parent) if self.parent is not None else None

    def edges(self) -> Iterator[Edge]:
        """The part of the graph that the path shows."""
        namespace, source = self.source
        if self.parent_job is not None:
            yield Edge(self.parent_job, self.source, is_output=True)
        here = self.source
        for place, transform in enumerate(self.transforms, 1):
            job = Node(namespace, f"{source}.{transform}")
            yield Edge(job, here, is_output=False)
            if place < len(self.transforms) or self.is_split:
                here = job
                yield Edge(job, here, is_output=True)
            elif self.sink:
                yield Edge(job, Node(namespace, self.sink), is_output=True)
        if self.is_split:
            yield Edge(split_of(self.source), here, is_output=False)
        elif self.sink and not self.transforms:
            job = Node(namespace, f"{source}.{self.sink}")
            yield Edge(job, here, is_output=False)
            yield Edge(job, Node(namespace, self.sink), is_output=True)


def split_of(source: Node) -> Node:
    """The job in which the files of a data source are split."""
    return Node(source.namespace, f"{source.name}.{SPLIT}")


def path_of(event: FileEvent, envelope: Envelope) -> Path:
    """What one event says of the path of its file."""
    is_split = event.state is FinalState.SPLIT
    notes = job_facets_of(envelope)
    return Path(event.flow.source, event.transforms, event.sink, is_split, event.comes_from, notes)


def paths_of_records(entry: Entry) -> list[Path]:
    """What DeltaFi's records in an entry say of the paths of files."""
    if entry.kind is not Kind.PROVENANCE:
        return []
    try:
        records = decode_records(entry.body, system_name=entry.system_name)
    except UNREADABLE:
        return []
    return [
        Path(
            Node(record.system_name, record.data_source),
            record.transforms,
            record.data_sink,
            is_split=record.final_state is FinalState.SPLIT,
        )
        for record in records
    ]


class Job(msgspec.Struct):
    """One job of the graph, as it is stored.

    Attributes:
        told_ms: when the backend was told all of this, epoch milliseconds; 0: not yet.
    """

    node: Node
    inputs: set[Node] = msgspec.field(default_factory=set)
    outputs: set[Node] = msgspec.field(default_factory=set)
    notes: JobFacets = JobFacets()
    told_ms: int = 0

    @property
    def extent(self) -> tuple[int, JobFacets]:
        """A value that changes whenever more is known of the job."""
        return len(self.inputs) + len(self.outputs), self.notes

    def datasets(self, edge: Edge) -> set[Node]:
        """The inputs or the outputs, to which an edge belongs."""
        return self.outputs if edge.is_output else self.inputs

    def note(self, notes: JobFacets, now_ms: int) -> bool:
        """Take in facets of the job; returns whether the backend has to be told of them."""
        if not notes or notes == self.notes:
            return False
        if self.notes and now_ms - self.told_ms < NOTE_AFTER_MS:
            return False
        self.notes, self.told_ms = notes, 0
        return True


class JobGraph:
    """The graph, and which part of it the backend has still to be told; `rows` are the stored jobs by key."""

    def __init__(self, rows: Mapping[str, bytes]) -> None:
        stored = [msgspec.json.decode(row, type=Job) for row in rows.values()]
        self._jobs = {job.node: job for job in stored}
        self._nodes = list(self._jobs)
        self._numbers = {node: -number for number, node in enumerate(self._nodes, 1)}
        self._telling: dict[Node, tuple[int, JobFacets]] = {}
        self._learned_until_ms: dict[Path, int] = {}
        self._edges = sum(len(job.inputs) + len(job.outputs) for job in stored)

    def untold(self) -> list[Node]:
        """The jobs that the backend has to be told of."""
        return [node for node, job in self._jobs.items() if not job.told_ms]

    def number(self, node: Node) -> int:
        """A number below 0 for a job, used where events have their sequence numbers."""
        return self._numbers[node]

    def node(self, number: int) -> Node:
        """The job that a number stands for."""
        return self._nodes[-number - 1]

    def learn(self, path: Path, now_ms: int) -> set[Node]:
        """Take in one path; returns the jobs to tell: new or changed ones, and those last told long ago."""
        due: set[Node] = set()
        if now_ms < self._learned_until_ms.get(path, 0):
            return due
        until_ms = now_ms + LEARNED_FOR_MS
        for edge in path.edges():
            job = self._jobs.get(edge.job)
            if job is None or edge.dataset not in job.datasets(edge):
                if self._edges >= EDGES_MAX:
                    continue
                self._edges += 1
                job = job or self._begin(edge.job)
                job.datasets(edge).add(edge.dataset)
                job.told_ms = 0
                due.add(edge.job)
            elif job.told_ms and now_ms - job.told_ms > RENEW_AFTER_MS:
                job.told_ms = 0
                due.add(edge.job)
            if path.parent_job != edge.job and job.note(path.notes, now_ms):
                due.add(edge.job)
            if job.told_ms:
                until_ms = min(until_ms, job.told_ms + RENEW_AFTER_MS)
        if len(self._learned_until_ms) >= PATHS_MAX:
            self._learned_until_ms.clear()
        self._learned_until_ms[path] = until_ms
        return due

    def _begin(self, node: Node) -> Job:
        self._nodes.append(node)
        self._numbers[node] = -len(self._nodes)
        return self._jobs.setdefault(node, Job(node))

    def told(self, node: Node, now_ms: int) -> bool:
        """Note that the backend has the last `event` of a job; False when more is known of the job by now."""
        job = self._jobs[node]
        is_all = self._telling.pop(node) == job.extent
        job.told_ms = now_ms if is_all else 0
        return is_all

    def row(self, node: Node) -> bytes:
        """A job as it is stored."""
        return msgspec.json.encode(self._jobs[node], order="deterministic")

    def forgotten(self, keys: Collection[str]) -> list[Node]:
        """Note that the backend lacks the jobs with these row keys, and return them."""
        nodes = [node for node in self._jobs if row_key(node) in keys]
        for node in nodes:
            self._jobs[node].told_ms = 0
        return nodes

    def event(self, node: Node) -> bytes:
        """The JobEvent that tells all that is known of a job."""
        job = self._jobs[node]
        self._telling[node] = job.extent
        return msgspec.json.encode(
            {
                "eventTime": instant(time.time_ns() // 1_000_000),
                "producer": PRODUCER,
                "schemaURL": f"{OPENLINEAGE_SPEC}/2-0-2/OpenLineage.json#/$defs/JobEvent",
                "job": node._asdict() | {"facets": _facets(node, job.notes)},
                "inputs": [self._dataset(dataset) for dataset in sorted(job.inputs)],
                "outputs": [self._dataset(dataset) for dataset in sorted(job.outputs)],
            }
        )

    def _dataset(self, node: Node) -> dict[str, object]:
        """A dataset; what lies between two transforms is described each time, or Marquez forgets it."""
        if node not in self._jobs:
            return {**node._asdict()}
        source, _, flow = node.name.rpartition(".")
        says = f"Files of the data source {source} that have passed {flow}."
        facet = standard_facet("1-1-0", "DocumentationDatasetFacet", description=says)
        return {**node._asdict(), "facets": {"documentation": facet}}


def row_key(node: Node) -> str:
    """The state key of a job."""
    return f"{JOURNEY_PREFIX}{blake2b(msgspec.json.encode(node), digest_size=12).hexdigest()}"


def _facets(node: Node, notes: JobFacets) -> dict[str, dict[str, object]]:
    """A job's facets: all of them each time, because Marquez forgets those of the last version."""
    source, _, flow = node.name.rpartition(".")
    if flow == SPLIT:
        kind, says = "SPLIT", f"Where files of the data source {source} come apart into others."
    else:
        kind, says = "TRANSFORM", f"The flow {flow}, as files of the data source {source} pass it."
    description = f"{says} {notes.documentation}" if notes.documentation else says
    job_type = {"processingType": "BATCH", "integration": "WAYBILL", "jobType": kind}
    facets = {
        "documentation": standard_facet("1-1-0", "DocumentationJobFacet", description=description),
        "jobType": standard_facet("2-0-4", "JobTypeJobFacet", **job_type),
    }
    if notes.owners:
        facets["ownership"] = standard_facet("1-0-1", "OwnershipJobFacet", owners=notes.owners)
    if notes.tags:
        facets["tags"] = standard_facet("1-0-0", "TagsJobFacet", tags=notes.tags)
    return facets


def instant(time_ms: int) -> str:
    """A time as OpenLineage writes it."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def standard_facet(version: str, name: str, **members: object) -> dict[str, object]:
    """A facet of OpenLineage's own, of a version of its schema."""
    return {
        "_producer": PRODUCER,
        "_schemaURL": f"{OPENLINEAGE_SPEC}/facets/{version}/{name}.json#/$defs/{name}",
        **members,
    }
