"""Nodes and edges of the graph."""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b

import msgspec


class NodeKind(StrEnum):
    """A type of node."""

    DATASET = "dataset"
    JOB = "job"
    COLUMN = "column"


class Node(msgspec.Struct, frozen=True, order=True, omit_defaults=True, gc=False):
    """A dataset, a job or a column.

    Attributes:
        kind: its type.
        namespace: as OpenLineage has it.
        name: unique within the namespace and type; of a column, its dataset's.
        column: of a column, its own name.
    """

    kind: NodeKind
    namespace: str
    name: str
    column: str = ""

    @property
    def number(self) -> int:
        """The node's number in every database: 63 bits of a hash, so that two indexes agree on it."""
        text = f"{self.kind}\0{self.namespace}\0{self.name}\0{self.column}"
        digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest) >> 1

    def with_column(self, name: str) -> Node:
        """A column of this dataset."""
        return Node(NodeKind.COLUMN, self.namespace, self.name, name)


class EdgeKind(StrEnum):
    """A type of edge; each but the last goes where data flows."""

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
    SAME = "same"
    """Between two names of one dataset."""


class Edge(msgspec.Struct, frozen=True, order=True):
    """An edge from one node to another."""

    source: Node
    kind: EdgeKind
    target: Node
