"""What one event tells of the graph, part by part: its job, and each dataset that it names.

The facets are OpenLineage's (https://openlineage.io/spec/facets): one that cannot be read tells nothing. Of
what they say about columns, the most certain counts: the facet `lineage`, then `columnLineage`, then what
analyzers find.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec

from waybill.facets import DATA_SINK, INFERRED_FACET, DatasetEvent, RunEvent
from waybill.facets.event import SINKS_FACET, read_facet
from waybill.facets.flows import path_in
from waybill.facets.spark_writes import written
from waybill.facets.standard import NOTES_MAX_BYTES, read_dependencies, read_members, read_standard

from .elements import COLUMN_LINEAGE, EVENT, LINEAGE, EdgeKind, Node, NodeKind

if TYPE_CHECKING:
    from waybill.facets import Event, JobEvent
    from waybill.facets.event import DatasetName, Job
    from waybill.facets.flows import FlowPath
    from waybill.facets.standard import Facet

_T = TypeVar("_T")

NAME_CHARS_MAX: Final = 4_096
"""A name with more characters tells nothing."""
TRANSFORMS_MAX: Final = 1_000
"""A path of a file with more transforms tells nothing of them."""
PROPERTY_BYTES_MAX: Final = 2**20
"""A facet with more bytes is no property."""
UNFED_MAX: Final = 10_000
"""If a finding has more pairs of an input and an output, it decides nothing: each output has all inputs."""

INFERRED: Final = "inferred"
CONFIDENCE: Final = {EVENT: 1.0, LINEAGE: 1.0, COLUMN_LINEAGE: 0.95, INFERRED: 0.5}

_DATASET_PROPERTIES: Final = (
    "schema", "documentation", "ownership", "tags", "dataSource", "catalog", "storage", "datasetType",
    "lifecycleStateChange",
)  # fmt: skip
_JOB_PROPERTIES: Final = ("sql", "documentation", "ownership", "tags", "jobType", "sourceCodeLocation")


_Pair = tuple[str, str]


class Part(NamedTuple):
    """A part of an event, which tells the same in whichever event it stands.

    Attributes:
        job: the namespace and the name of the event's job; None of an event about a dataset.
        dataset: those of the dataset; None: the part is the job itself.
        kind: how the job uses the dataset; None: it only names it.
        place: of a dataset, its place among those that the event reads or writes, from 0.
        facets: those of the dataset or the job, as JSON.
        producer: of the event; empty unless the part tells of it.
        around: of a job, the job whose run started its run.
        dependencies: of a job, the run facet `jobDependencies`, as JSON.
        locations: of a dataset, the paths in it that the facet `subset` names.
        path: the path of a file, whose run is one of the job; the facets are the job's.
        named: of an event that an analyzer found, the inputs, among which it decides; None: it found none.
    """

    job: _Pair | None
    dataset: _Pair | None
    kind: EdgeKind | None
    place: int
    facets: bytes
    producer: str = ""
    around: _Pair | None = None
    dependencies: bytes = b""
    locations: tuple[str, ...] = ()
    path: FlowPath | None = None
    named: tuple[_Pair, ...] | None = None


class Told(NamedTuple):
    """An edge as a part tells it; see `Edge`.

    Attributes:
        detail: the transformations as JSON.
        place: its place among those of its kind.
    """

    source: Node
    kind: EdgeKind
    target: Node
    job: Node | None = None
    analyzer: str = EVENT
    confidence: float = 1.0
    detail: str = ""
    place: int = 0


class Belief(NamedTuple):
    """Somebody has told from what a job writes a dataset, or its columns, and how sure that is."""

    job: Node | None
    dataset: Node
    of_columns: bool
    analyzer: str
    confidence: float


class Observed:
    """What a part tells.

    Attributes:
        nodes: the nodes, also those without edges.
        edges: the edges.
        beliefs: of what they tell all there is.
        properties: by node and facet, the facet as JSON.
    """

    def __init__(self) -> None:
        self.nodes: set[Node] = set()
        self.edges: list[Told] = []
        self.beliefs: list[Belief] = []
        self.properties: dict[tuple[Node, str], str] = {}


class _Transformation(msgspec.Struct, frozen=True):
    type: str = ""
    subtype: str | None = None
    masking: bool | None = None


class _Source(msgspec.Struct):
    """A source in `columnLineage` or in `lineage`: a column, a dataset, or there a job, too."""

    namespace: str | None = None
    name: str | None = None
    field: str | None = None
    type: str = "DATASET"
    transformations: tuple[_Transformation, ...] | None = None

    @property
    def node(self) -> Node | None:
        if self.namespace is None or self.name is None:
            return None
        if self.type == "JOB":
            return Node(NodeKind.JOB, self.namespace, self.name)
        dataset = Node(NodeKind.DATASET, self.namespace, self.name)
        return dataset if self.field is None else dataset.with_column(self.field)


class _Derived(msgspec.Struct):
    sources: tuple[_Source, ...] = msgspec.field(default=(), name="inputFields")


class _ColumnLineage(msgspec.Struct):
    fields: dict[str, _Derived] = {}
    dataset: tuple[_Source, ...] | None = None


class _Field(msgspec.Struct):
    inputs: tuple[_Source, ...] = ()


class _Condition(msgspec.Struct):
    locations: tuple[str, ...] = ()


class _Subset(msgspec.Struct):
    read: _Condition = msgspec.field(default_factory=_Condition, name="inputCondition")
    written: _Condition = msgspec.field(default_factory=_Condition, name="outputCondition")


class _InUse(msgspec.Struct):
    """The facets of a dataset that are about one run."""

    subset: msgspec.Raw = msgspec.Raw()


class _Lineage(msgspec.Struct):
    """The facet `lineage` of a dataset, and an entry of that of a job."""

    inputs: tuple[_Source, ...] | None = None
    fields: dict[str, _Field] | None = None
    type: str = ""
    namespace: str | None = None
    name: str | None = None


class _JobLineage(msgspec.Struct):
    entries: tuple[_Lineage, ...] = ()


_COLUMN_LINEAGE: Final = msgspec.json.Decoder(_ColumnLineage)
_IN_USE: Final = msgspec.json.Decoder(_InUse)
_SUBSET: Final = msgspec.json.Decoder(_Subset)
_LINEAGE: Final = msgspec.json.Decoder(_Lineage)
_JOB_LINEAGE: Final = msgspec.json.Decoder(_JobLineage)
_ABSENT: Final = msgspec.Raw()
_INDIRECT: Final = "INDIRECT"
_INFERRED_KEY: Final = f'"{INFERRED_FACET}"'.encode()


def parts_of(event: Event, *, is_found: bool = False) -> Iterator[Part]:
    """Return the parts of an event without those with too long a name; its job comes first.

    Args:
        event: the event.
        is_found: whether an analyzer found it; so is a stored one whose job is marked as inferred.
    """
    if isinstance(event, DatasetEvent):
        if not is_too_long(event.dataset):
            yield Part(None, _pair(event.dataset), None, 0, bytes(event.dataset.facets), event.producer)
        return
    if is_too_long(event.job):
        return
    job = _pair(event.job)
    around, dependencies = None, b""
    if isinstance(event, RunEvent) and (facets := event.run.facets) is not None:
        dependencies = bytes(facets.job_dependencies)
        parent, file = facets.parent, facets.delta_file
        if parent is not None and (file is None or parent.run.runId != file.parent_did):  # it is no file
            around = _pair(parent.job)
    body, outputs = bytes(event.job.facets), event.outputs or ()
    named = _named_in(event) if is_found or _INFERRED_KEY in body else None
    yield Part(job, None, None, 0, body, event.producer, around, dependencies, named=named)
    for place, dataset in enumerate(event.inputs or ()):
        if not is_too_long(dataset):
            body, locations = bytes(dataset.facets), _locations_in(getattr(dataset, "input_facets", _ABSENT))
            yield Part(job, _pair(dataset), EdgeKind.READ, place, body, locations=locations, named=named)
    writes = {id(one) for one in (written(event) if isinstance(event, RunEvent) else outputs)}
    for place, dataset in enumerate(outputs):
        if not is_too_long(dataset):
            kind = EdgeKind.WRITE if id(dataset) in writes else None
            body, locations = bytes(dataset.facets), _locations_in(dataset.output_facets)
            yield Part(job, _pair(dataset), kind, place, body, locations=locations, named=named)


def _named_in(found: RunEvent | JobEvent) -> tuple[_Pair, ...]:
    """The inputs among which an analyzer decides; none if that would be too many edges."""
    inputs, outputs = found.inputs or (), found.outputs or ()
    is_small = len(inputs) * len(outputs) <= UNFED_MAX
    return tuple(_pair(one) for one in inputs if is_small and not is_too_long(one))


def part_of_file(event: Event) -> Part | None:
    """The part of an event that tells the path of its file; None: it tells none."""
    path = path_in(event)
    if path is None or not isinstance(event, RunEvent) or not is_drawn(path):
        return None
    return Part(_pair(event.job), None, None, 0, bytes(event.job.facets), path=path)


def is_drawn(path: FlowPath) -> bool:
    """Whether a path has edges, and not too many."""
    has_edges = path.transforms or path.sink or path.is_split or path.parent
    return bool(has_edges) and len(path.transforms) <= TRANSFORMS_MAX


def observe_part(part: Part, analyzer: str = INFERRED, confidence: float = CONFIDENCE[INFERRED]) -> Observed:
    """Return what a part tells.

    Args:
        part: the part.
        analyzer: if it was found, the analyzer.
        confidence: how sure the analyzer is.
    """
    return _Observing(part, analyzer, confidence).observe()


class _Observing:
    def __init__(self, part: Part, analyzer: str, confidence: float) -> None:
        self._part = part
        self._job = None if part.job is None else Node(NodeKind.JOB, *part.job)
        self._dataset = None if part.dataset is None else Node(NodeKind.DATASET, *part.dataset)
        self._facets = read_members(part.facets)
        self._analyzer = "" if part.named is None else analyzer
        self._confidence = confidence
        self._writer = self._job if part.dataset is None or part.kind is EdgeKind.WRITE else None
        self._told = Observed()

    def observe(self) -> Observed:
        told = self._told
        if self._part.path is not None:
            self._observe_path(self._part.path)
        elif self._dataset is not None:
            self._observe_dataset(self._dataset)
        elif self._job is not None:
            self._observe_job(self._job)
        columns = [one for one in told.edges if one.kind in {EdgeKind.DERIVE, EdgeKind.INFLUENCE}]
        ends = dict.fromkeys((one.source.dataset, one.target.dataset, one.analyzer) for one in columns)
        for place, (origin, dataset, by) in enumerate(ends):
            if origin != dataset:  # what its columns come from, or the choice of its rows, it comes from
                self._feed(origin, dataset, by, place)
        for edge in told.edges:
            told.nodes.update((edge.source, edge.target))
        told.nodes.update([one.dataset for one in told.nodes if one.kind is NodeKind.COLUMN])
        return told

    def _describe(self, node: Node, *keys: str) -> None:
        """Take the facets with some keys, and the owners, as those of a node."""
        self._told.nodes.add(node)
        for key in keys:
            if (text := _property(self._facets.get(key, _ABSENT))) is not None:
                self._told.properties[node, key] = text
        for owner in self._standard("ownership").owners or ():
            self._tell(Node(NodeKind.OWNER, "", owner.name), EdgeKind.OWN, node)

    def _observe_path(self, path: FlowPath) -> None:
        """Observe the jobs that a file passed; they have the owners and tags of the job of its run."""
        self._facets = {key: facet for key, facet in self._facets.items() if len(facet) <= NOTES_MAX_BYTES}
        documentation = self._standard("documentation").description or ""
        for step in path.steps:
            job = Node(NodeKind.JOB, *step.node)
            if not is_too_long(job):
                self._describe(job, "ownership", "tags")
                says = {"description": f"{step.job_says} {documentation}".rstrip()}
                self._told.properties[job, "documentation"] = _text_of(says)
            if self._job is not None:
                self._tell(self._job, EdgeKind.CONTAIN, job)
        for edge in path.edges():
            job, dataset = Node(NodeKind.JOB, *edge.job.node), Node(NodeKind.DATASET, *edge.dataset)
            if edge.is_output:
                self._tell(job, EdgeKind.WRITE, dataset, place=1)  # after the job of the run
            else:
                self._tell(dataset, EdgeKind.READ, job, place=1)

    def _observe_job(self, job: Node) -> None:
        part = self._part
        self._describe(job, *_JOB_PROPERTIES)
        if part.producer:
            self._tell(Node(NodeKind.PRODUCER, "", part.producer), EdgeKind.PRODUCE, job)
        if part.around is not None and part.around != part.job:
            self._tell(Node(NodeKind.JOB, *part.around), EdgeKind.START, job)
        dependencies = read_dependencies(msgspec.Raw(part.dependencies))
        for before in (one.job for one in dependencies.upstream or () if one.job is not None):
            self._tell(job_of(before), EdgeKind.PRECEDE, job)
        for after in (one.job for one in dependencies.downstream or () if one.job is not None):
            self._tell(job, EdgeKind.PRECEDE, job_of(after))
        for entry in (self._read(_JOB_LINEAGE, LINEAGE) or _JobLineage()).entries:
            named = entry.namespace is not None and entry.name is not None
            if entry.type == "JOB":
                target = Node(NodeKind.JOB, entry.namespace or "", entry.name or "") if named else job
                for place, source in enumerate(entry.inputs or ()):
                    kind = EdgeKind.PRECEDE if source.type == "JOB" else EdgeKind.READ
                    self._tell(source.node or job, kind, target, LINEAGE, place=place)
            elif named:
                dataset = Node(NodeKind.DATASET, entry.namespace or "", entry.name or "")
                self._tell(job, EdgeKind.WRITE, dataset, LINEAGE)
                self._observe_lineage(entry, dataset)

    def _observe_dataset(self, dataset: Node) -> None:
        part = self._part
        self._describe(dataset, *_DATASET_PROPERTIES)
        if part.producer:
            self._tell(Node(NodeKind.PRODUCER, "", part.producer), EdgeKind.PRODUCE, dataset)
        if self._job is not None and part.kind is not None:
            ends = (dataset, self._job) if part.kind is EdgeKind.READ else (self._job, dataset)
            self._tell(ends[0], part.kind, ends[1], place=part.place)
        self._observe_names(dataset)
        for location in part.locations:
            if location != dataset.name:
                self._tell(dataset, EdgeKind.HOLD, Node(NodeKind.RESOURCE, dataset.namespace, location))
        self._observe_origin(dataset)
        if (lineage := self._read(_LINEAGE, LINEAGE)) is not None:
            self._observe_lineage(lineage, dataset)
        columns = self._read(_COLUMN_LINEAGE, COLUMN_LINEAGE)
        if columns is not None:
            self._believe(dataset, COLUMN_LINEAGE, of_columns=True)
            for name, derived in columns.fields.items():
                self._derive(dataset.with_column(name), derived.sources, COLUMN_LINEAGE)
            self._influence(dataset, columns.dataset or (), columns.fields, COLUMN_LINEAGE)

    def _observe_names(self, dataset: Node) -> None:
        names = [name for key in ("symlinks", SINKS_FACET) for name in self._standard(key).identifiers or ()]
        for other in names:
            if other.type == DATA_SINK:
                # No name of the dataset: files that go there may be written to several.
                sink = Node(NodeKind.RESOURCE, other.namespace, other.name)
                self._tell(sink, EdgeKind.HOLD, dataset)
            elif (same := _dataset(other)) != dataset:
                self._tell(dataset, EdgeKind.SAME, same)

    def _observe_origin(self, dataset: Node) -> None:
        """Observe where a dataset is, its version, and the name that it had before."""
        source = self._standard("dataSource")
        if source.uri or source.name:
            name = source.uri or source.name or ""
            self._tell(Node(NodeKind.CONNECTION, "", name), EdgeKind.HOLD, dataset)
        if (version := self._standard("version").version) and self._part.kind:
            node = Node(NodeKind.VERSION, dataset.namespace, dataset.name, version=version)
            self._tell(dataset, EdgeKind.VERSION, node)
        change = self._standard("lifecycleStateChange")
        is_rename = (change.change or "").upper() == "RENAME"
        if is_rename and change.previous is not None and self._job is not None:
            # What is renamed is read and written: another dataset may get the earlier name later.
            self._tell(_dataset(change.previous), EdgeKind.READ, self._job)
            self._tell(self._job, EdgeKind.WRITE, dataset)

    def _observe_lineage(self, lineage: _Lineage, dataset: Node) -> None:
        """Observe what the facet `lineage` says of a dataset."""
        if lineage.inputs is not None:
            self._believe(dataset, LINEAGE, of_columns=False)
            for place, source in enumerate(lineage.inputs):
                if (node := source.node or self._job) is not None:
                    origin = node.dataset if node.kind is NodeKind.COLUMN else node
                    self._feed(origin, dataset, LINEAGE, place)
            for unfed in (Node(NodeKind.DATASET, *pair) for pair in self._part.named or ()):
                told = Told(unfed, EdgeKind.FEED, dataset, self._writer, self._analyzer, confidence=0.0)
                self._told.edges.append(told)  # of those told twice, the surest counts
        decisive = [source for source in lineage.inputs or () if source.field is not None]
        if lineage.fields or decisive:
            self._believe(dataset, LINEAGE, of_columns=True)
        for name, field in (lineage.fields or {}).items():
            self._derive(dataset.with_column(name), field.inputs, LINEAGE)
        self._influence(dataset, decisive, lineage.fields or (), LINEAGE)

    def _feed(self, origin: Node, dataset: Node, by: str, place: int) -> None:
        """A dataset comes from something, which the job reads that writes it, if there is one."""
        self._tell(origin, EdgeKind.FEED, dataset, by, place=place)
        if self._writer is not None and origin.kind is NodeKind.DATASET:
            self._tell(origin, EdgeKind.READ, self._writer, by, place=place)

    def _derive(self, column: Node, sources: Iterable[_Source], by: str) -> None:
        for place, source in enumerate(sources):
            kinds = [one.type.upper() for one in source.transformations or ()]
            is_indirect = bool(kinds) and all(kind == _INDIRECT for kind in kinds)
            kind = EdgeKind.INFLUENCE if is_indirect else EdgeKind.DERIVE
            if (node := source.node) is not None and node.kind is not NodeKind.JOB:
                self._tell(node, kind, column, by, detail=_detail(source.transformations), place=place)

    def _influence(self, dataset: Node, sources: Iterable[_Source], columns: Iterable[str], by: str) -> None:
        """What decides the rows decides every column. By way of the dataset, these are few edges."""
        nodes = [(source, source.node) for source in sources]
        for place, (source, node) in enumerate(nodes):
            if node is not None:
                detail = _detail(source.transformations)
                self._tell(node, EdgeKind.INFLUENCE, dataset, by, detail=detail, place=place)
        if nodes:  # also a column without origins, such as a count, which only the schema names
            columns = [*columns, *(one.name for one in self._standard("schema").fields or ())]
        for name in dict.fromkeys(columns if nodes else ()):
            self._tell(dataset, EdgeKind.INFLUENCE, dataset.with_column(name), by)

    def _believe(self, dataset: Node, by: str, *, of_columns: bool) -> None:
        confidence = self._confidence if self._analyzer else CONFIDENCE[by]
        told = Belief(self._job, dataset, of_columns, self._analyzer or by, confidence)
        self._told.beliefs.append(told)

    def _tell(
        self, source: Node, kind: EdgeKind, target: Node, by: str = EVENT, *, detail: str = "", place: int = 0
    ) -> None:
        if any(
            is_too_long(end) or len(end.column or end.version) > NAME_CHARS_MAX for end in (source, target)
        ):
            return
        confidence = self._confidence if self._analyzer else CONFIDENCE[by]
        of_job = {EdgeKind.DERIVE: self._job, EdgeKind.INFLUENCE: self._job, EdgeKind.FEED: self._writer}
        job = of_job.get(kind)
        analyzer = self._analyzer or by
        self._told.edges.append(Told(source, kind, target, job, analyzer, confidence, detail, place))

    def _standard(self, key: str) -> Facet:
        return read_standard(self._facets.get(key, _ABSENT))

    def _read(self, decoder: msgspec.json.Decoder[_T], key: str) -> _T | None:
        return read_facet(decoder, self._facets.get(key, _ABSENT))


def is_too_long(named: DatasetName | Job | Node) -> bool:
    """Whether a name tells nothing."""
    return len(named.name) > NAME_CHARS_MAX or len(named.namespace) > NAME_CHARS_MAX


def _pair(named: DatasetName | Job) -> _Pair:
    return named.namespace, named.name


def job_of(job: Job) -> Node:
    """The node of a job."""
    return Node(NodeKind.JOB, job.namespace, job.name)


def _dataset(named: DatasetName) -> Node:
    return Node(NodeKind.DATASET, named.namespace, named.name)


def _locations_in(facets: msgspec.Raw) -> tuple[str, ...]:
    """The paths of a dataset that a run read or wrote, as far as its facet `subset` names them."""
    if b'"subset"' not in bytes(facets):
        return ()
    in_use = read_facet(_IN_USE, facets) or _InUse()
    subset = read_facet(_SUBSET, in_use.subset) or _Subset()
    return (*subset.read.locations, *subset.written.locations)


@functools.lru_cache(maxsize=1_024)
def _detail(transformations: tuple[_Transformation, ...] | None) -> str:
    """The transformations as JSON: each type with its subtype, and whether one masks; empty: none is told."""
    told = transformations or ()
    names = sorted({f"{one.type.upper()}/{(one.subtype or '').upper()}".rstrip("/") for one in told})
    if not names:
        return ""
    return msgspec.json.encode([names, any(one.masking for one in told)]).decode()


def _property(facet: msgspec.Raw) -> str | None:
    """A facet without who said it; None if it is absent, too large, or no object."""
    if not facet or len(bytes(facet)) > PROPERTY_BYTES_MAX:
        return None
    told = read_facet(_OBJECT, facet)
    if told is None:
        return None
    return _text_of({key: value for key, value in told.items() if not key.startswith("_")})


def _text_of(facet: Mapping[str, object]) -> str:
    return msgspec.json.encode(facet, order="sorted").decode()


_OBJECT: Final = msgspec.json.Decoder(dict[str, object])
