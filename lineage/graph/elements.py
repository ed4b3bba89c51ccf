"""Nodes and edges of the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec


class NodeKind(StrEnum):
    """A type of node."""

    DATASET = "dataset"
    JOB = "job"
    COLUMN = "column"
    RUN = "run"
    """A run of a job, by its id."""
    VERSION = "version"
    """A version of a dataset, as the facet `version` names it."""
    RESOURCE = "resource"
    """What stands for a dataset, or a part of it: a partition, or a data sink of tracked files."""
    CONNECTION = "connection"
    """What the facet `datasource` names, by its URI."""
    OWNER = "owner"
    PRODUCER = "producer"
    """A program that sent events, by its URI: the root of what it told."""
    NAMESPACE = "namespace"
    CONCEPT = "concept"
    """A type of node as a node of its own, the parent concept of each instance."""


def number_of(text: str) -> int:
    """The number of a text: 63 bits of a hash, which fit into an integer of SQL."""
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


class Node(msgspec.Struct, frozen=True, order=True, omit_defaults=True, gc=False):
    """A dataset, a job, a column, or what else the graph has.

    Attributes:
        kind: its type.
        namespace: as OpenLineage has it; empty where there is none.
        name: unique within the namespace and type; of a column or a version, its dataset's.
        column: of a column, its own name.
        version: of a version, its own name.
    """

    kind: NodeKind
    namespace: str
    name: str
    column: str = ""
    version: str = ""

    @property
    def number(self) -> int:
        """The node's number in every database: 63 bits of a hash, so that two indexes agree on it."""
        return number_of(f"{self.kind}\0{self.namespace}\0{self.name}\0{self.column or self.version}")

    def with_column(self, name: str) -> Node:
        """A column of this dataset."""
        return Node(NodeKind.COLUMN, self.namespace, self.name, name)

    @property
    def dataset(self) -> Node:
        """The dataset of a column or a version."""
        return Node(NodeKind.DATASET, self.namespace, self.name)

    @classmethod
    def of_row(cls, kind: str, namespace: str, name: str, part: str) -> Node:
        """The node of a row of the table `node`."""
        if kind == NodeKind.VERSION:
            return cls(NodeKind.VERSION, namespace, name, version=part)
        return cls(NodeKind(kind), namespace, name, part)


class EdgeKind(StrEnum):
    """A type of edge. The first four go where data flows, the others from the whole to a part of it."""

    READ = "read"
    """From a dataset to a job that reads it."""
    WRITE = "write"
    """From a job to a dataset that it writes."""
    DERIVE = "derive"
    """From a column to one whose values come from it."""
    INFLUENCE = "influence"
    """From a column to one of which it decides the rows or their order, as in a filter or a join.

    If it decides those of all columns, it is an edge to the dataset, from which others go to the columns.
    """
    FEED = "feed"
    """From a dataset or a job to a dataset that comes from it: as a job writes it, or without any job.

    With a confidence of 0, an analyzer has found that it does not come from it.
    """
    SAME = "same"
    """Between two names of one dataset."""
    PRECEDE = "precede"
    """From a job to one that waits for it."""
    START = "start"
    """From a job to one whose runs its runs start."""
    HOLD = "hold"
    """From a connection or a data sink to a dataset behind it, or from a dataset to a resource in it."""
    VERSION = "version"
    """From a dataset to a version of it."""
    OWN = "own"
    """From an owner to a dataset or a job."""
    PRODUCE = "produce"
    """From a producer to a job or a dataset of its events."""
    CONTAIN = "contain"
    """From a namespace to a dataset or a job in it, from a dataset to a column, or from the job of files to
    one of those that they pass."""
    RUN = "run"
    """From a job to a run of it."""
    PARENT_CONCEPT = "parentconcept"
    """From a concept to an instance of it."""


GUESS_BELOW: Final = 0.5
"""What is less sure than this is shown as a guess."""


class Edge(msgspec.Struct, frozen=True, order=True, omit_defaults=True, gc=False):
    """An edge from one node to another.

    Attributes:
        source: where it begins.
        kind: its type.
        target: where it ends.
        job: of an edge between columns or datasets, the job that makes it; None if a dataset alone said it.
        analyzer: who told it: a facet's name, `event` for what the event itself says, or an analyzer.
        confidence: how sure that is, from 0 to 1.
        transformations: what happens to the values, as OpenLineage's types and subtypes: `DIRECT/IDENTITY`.
        masking: whether the values are hidden on the way.
        run: a run in whose event it was told lately; empty: it was no event of a run.
        first_ms: when it was told first, in epoch milliseconds.
    """

    source: Node
    kind: EdgeKind
    target: Node
    job: Node | None = None
    analyzer: str = ""
    confidence: float = 1.0
    transformations: tuple[str, ...] = ()
    masking: bool = False
    run: str = ""
    first_ms: int = 0

    @property
    def is_guess(self) -> bool:
        """Whether it is only likely, as from columns of the same name."""
        return self.confidence < GUESS_BELOW


EVENT: Final = "event"
"""The analyzer of what an event says without any facet."""
LINEAGE: Final = "lineage"
COLUMN_LINEAGE: Final = "columnLineage"
SAID: Final = (EVENT, LINEAGE, COLUMN_LINEAGE)
"""What events say themselves: nothing that analyzers find takes it away."""

HOUR_US: Final = 3_600_000_000
AHEAD_US: Final = 300_000_000
"""A sender's clock may be ahead of the receipts by so much."""


class Seen(NamedTuple):
    """When a part was seen, and in which run of the last hour: the least, which mostly is the first."""

    first_us: int
    last_hour: int
    run: str

    def merge(self, other: Seen) -> Seen:
        """Both as one."""
        last_hour, run = self.last_hour, self.run
        if (-other.last_hour, other.run) < (-last_hour, run):
            last_hour, run = other.last_hour, other.run
        return Seen(min(self.first_us, other.first_us), last_hour, run)


Ask = Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]
"""Executes a statement with its bindings."""


def as_json(values: Iterable[object]) -> str:
    """Values as a text that a statement takes."""
    return msgspec.json.encode(list(values)).decode()
