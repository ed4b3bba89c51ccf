"""The journey graph: what Marquez draws of the flows that files pass, beside the runs that it is sent.

A run of Marquez belongs to one job, so that a file's way through its transforms is not to be seen there. The
graph shows it: each transform of a data source is a job, and the stretches between are datasets.

    orders ─▶ [orders.decompress] ─▶ orders.decompress ─▶ [orders.load] ─▶ warehouse

- Names are OpenLineage's ``{parent}.{task}``: a transform is that of its data source, so that two sources
  that share a transform stay two flows, and nothing seems to come from where it does not.
- The data source and the data sinks are datasets, the same that the Tracker's runs read and write.
- A file that came apart ends in the job ``<data source>.split``, which gives the children's data source.
- A path without transforms is one job named after its sink; a path that ended on its way just ends.

Everything is told by JobEvents, which carry all that is known of a job, because Marquez takes the last one
for the whole truth.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from waybill.facets import PRODUCER, FinalState
from waybill.marquez.graph.file_event import Node
from waybill.marquez.graph.job_facets import JobFacets, job_facets_of
from waybill.transport.admission import admit_records
from waybill.transport.errors import AdmissionError
from waybill.transport.journal import Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from waybill.facets import ProvenanceRecord
    from waybill.marquez.envelope import Envelope
    from waybill.marquez.graph.file_event import FileEvent
    from waybill.transport.journal import Entry

JOURNEY_PREFIX: Final = "job:"

EDGES_MAX: Final = 20_000
"""More than any system of flows has; names made of something that differs for each file stop there."""

RENEW_AFTER_MS: Final = 86_400_000
"""A job still in use is told again after a day, because Marquez forgets what it does not hear of."""

LEARNED_FOR_MS: Final = 10_000
"""A path that was taken in is not looked at again for so long: most files go where the one before went."""
PATHS_MAX: Final = 10_000
"""How many paths are remembered so."""

NOTE_AFTER_MS: Final = 60_000
"""Emitters that say different things of one job are not passed on one after the other without end."""

SPLIT: Final = "split"

_SPEC: Final = "https://openlineage.io/spec"


class Edge(NamedTuple):
    """That a job reads a dataset, or writes it."""

    job: Node
    dataset: Node
    is_output: bool


class Path(NamedTuple):
    """What is known of one file's path.

    Attributes:
        source: its data source.
        transforms: the flows that changed it, in order.
        sink: the flow it left by.
        is_split: whether it came apart.
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
        """The job it comes from, which belongs to another data source."""
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
    """The job in which the files of a data source come apart."""
    return Node(source.namespace, f"{source.name}.{SPLIT}")


def path_of(event: FileEvent, envelope: Envelope) -> Path:
    """What one event says of the path of its file."""
    is_split = event.state is FinalState.SPLIT
    notes = job_facets_of(envelope)
    return Path(event.flow.source, event.transforms, event.sink, is_split, event.comes_from, notes)


def paths_of_records(entry: Entry) -> list[Path]:
    """What DeltaFi's records say of the paths of files; nothing where an entry has none that can be read."""
    if entry.kind is not Kind.PROVENANCE:
        return []
    try:
        records = admit_records(entry.body)
    except AdmissionError:
        return []
    return [_path_of_record(record, entry.system_name) for record in records]


def _path_of_record(record: ProvenanceRecord, system_name: str) -> Path:
    source = Node(record.system_name or system_name, record.data_source)
    return Path(source, record.transforms, record.data_sink, record.final_state is FinalState.SPLIT)


class Job(msgspec.Struct):
    """One job of the graph, as it is stored.

    Attributes:
        node: what it is called.
        inputs: the datasets it reads.
        outputs: those it writes.
        notes: what else is known of it.
        told_ms: when the backend was told all of this, epoch milliseconds; 0: not yet.
    """

    node: Node
    inputs: set[Node] = msgspec.field(default_factory=set)
    outputs: set[Node] = msgspec.field(default_factory=set)
    notes: JobFacets = JobFacets()
    told_ms: int = 0

    @property
    def extent(self) -> tuple[int, JobFacets]:
        """Differs when more is known."""
        return len(self.inputs) + len(self.outputs), self.notes

    def note(self, notes: JobFacets, now_ms: int) -> bool:
        """Take in what else is known; whether that is news to be told."""
        if not notes or notes == self.notes:
            return False
        if self.notes and now_ms - self.told_ms < NOTE_AFTER_MS:
            return False
        self.notes, self.told_ms = notes, 0
        return True


class JobGraph:
    """The graph, and what of it the backend has still to be told.

    Args:
        rows: what `row` gave, by key.
    """

    def __init__(self, rows: Mapping[str, bytes]) -> None:
        stored = [msgspec.json.decode(row, type=Job) for row in rows.values()]
        self._jobs = {job.node: job for job in stored}
        self._numbers = {node: -number for number, node in enumerate(self._jobs, 1)}
        self._nodes = {number: node for node, number in self._numbers.items()}
        self._telling: dict[Node, tuple[int, JobFacets]] = {}
        self._learned_until_ms: dict[Path, int] = {}
        self._edges = sum(len(job.inputs) + len(job.outputs) for job in stored)

    def untold(self) -> list[Node]:
        """The jobs that the backend has to be told of."""
        return [node for node, job in self._jobs.items() if not job.told_ms]

    def number(self, node: Node) -> int:
        """A number below 0 that stands for a job where entries of the journal have theirs."""
        return self._numbers[node]

    def node(self, number: int) -> Node:
        """The job that a number stands for."""
        return self._nodes[number]

    def learn(self, path: Path, now_ms: int) -> set[Node]:
        """Take in one path.

        Returns:
            The jobs that the backend has to be told of for it, being new, or changed, or long ago.
        """
        due: set[Node] = set()
        if now_ms < self._learned_until_ms.get(path, 0):
            return due
        until_ms = now_ms + LEARNED_FOR_MS
        for edge in path.edges():
            job = self._jobs.get(edge.job)
            known = job is not None and edge.dataset in (job.outputs if edge.is_output else job.inputs)
            if not known:
                if self._edges >= EDGES_MAX:
                    continue
                self._edges += 1
                job = job or self._begin(edge.job)
                (job.outputs if edge.is_output else job.inputs).add(edge.dataset)
                job.told_ms = 0
                due.add(edge.job)
            elif job is not None and job.told_ms and now_ms - job.told_ms > RENEW_AFTER_MS:
                job.told_ms = 0
                due.add(edge.job)
            if job is not None and path.parent_job != edge.job and job.note(path.notes, now_ms):
                due.add(edge.job)
            if job is not None and job.told_ms:
                until_ms = min(until_ms, job.told_ms + RENEW_AFTER_MS)
        if len(self._learned_until_ms) >= PATHS_MAX:
            self._learned_until_ms.clear()
        self._learned_until_ms[path] = until_ms
        return due

    def _begin(self, node: Node) -> Job:
        self._numbers[node] = -len(self._jobs) - 1
        self._nodes[self._numbers[node]] = node
        return self._jobs.setdefault(node, Job(node))

    def told(self, node: Node, now_ms: int) -> bool:
        """The backend has the last `event` of a job; False when more is known of the job by now."""
        job = self._jobs[node]
        is_all = self._telling.pop(node) == job.extent
        job.told_ms = now_ms if is_all else 0
        return is_all

    def row(self, node: Node) -> bytes:
        """A job as it is stored."""
        return msgspec.json.encode(self._jobs[node], order="deterministic")

    def forgotten(self, keys: Collection[str]) -> list[Node]:
        """The jobs of some rows, which the backend lacks: it has to be told of them again."""
        nodes = [node for node in self._jobs if row_key(node) in keys]
        for node in nodes:
            self._jobs[node].told_ms = 0
        return nodes

    def event(self, node: Node) -> bytes:
        """The JobEvent that tells all that is known of a job."""
        job = self._jobs[node]
        self._telling[node] = job.extent
        moment = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")
        return msgspec.json.encode(
            {
                "eventTime": moment.replace("+00:00", "Z"),
                "producer": PRODUCER,
                "schemaURL": f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/JobEvent",
                "job": node._asdict() | {"facets": _facets(node, job.notes)},
                "inputs": [self._dataset(dataset) for dataset in sorted(job.inputs)],
                "outputs": [self._dataset(dataset) for dataset in sorted(job.outputs)],
            }
        )

    def _dataset(self, node: Node) -> dict[str, object]:
        """A dataset; what lies between two transforms says so, each time, or Marquez forgets it."""
        if node not in self._jobs:
            return {**node._asdict()}
        source, _, flow = node.name.rpartition(".")
        says = f"Files of the data source {source} that have passed {flow}."
        facet = _facet("1-1-0", "DocumentationDatasetFacet", description=says)
        return {**node._asdict(), "facets": {"documentation": facet}}


def row_key(node: Node) -> str:
    """The key of the row that keeps a job."""
    return f"{JOURNEY_PREFIX}{blake2b(msgspec.json.encode(node), digest_size=12).hexdigest()}"


def _facets(node: Node, notes: JobFacets) -> dict[str, dict[str, object]]:
    """A job's facets: all of them each time, because Marquez forgets those of the version before."""
    is_split = node.name.endswith(f".{SPLIT}")
    facets = {
        "documentation": _facet(
            "1-1-0",
            "DocumentationJobFacet",
            description=" ".join(filter(None, (_description(node), notes.documentation))),
        ),
        "jobType": _facet(
            "2-0-4",
            "JobTypeJobFacet",
            processingType="BATCH",
            integration="WAYBILL",
            jobType=SPLIT.upper() if is_split else "TRANSFORM",
        ),
    }
    if notes.owners:
        facets["ownership"] = _facet("1-0-1", "OwnershipJobFacet", owners=notes.owners)
    if notes.tags:
        facets["tags"] = _facet("1-0-0", "TagsJobFacet", tags=notes.tags)
    return facets


def _description(node: Node) -> str:
    source, _, flow = node.name.rpartition(".")
    if flow == SPLIT:
        return f"Where files of the data source {source} come apart into others."
    return f"The flow {flow}, as files of the data source {source} pass it."


def _facet(version: str, name: str, **members: object) -> dict[str, object]:
    return {
        "_producer": PRODUCER,
        "_schemaURL": f"{_SPEC}/facets/{version}/{name}.json#/$defs/{name}",
        **members,
    }
