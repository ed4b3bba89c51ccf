"""The columns of datasets, and what each comes from in one step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from .elements import Ask, Edge, Node, NodeKind
from .properties import columns_in, properties_of
from .walking import ALWAYS_US, COLUMNS, Nodes, Walk


class DatasetColumns(msgspec.Struct, frozen=True):
    """The columns of a dataset, and what they come from in one step.

    Attributes:
        dataset: the dataset.
        names: those that its schema names, in its order, then others that are known.
        edges: those to its columns, or to the dataset itself from columns that decide all its rows.
    """

    dataset: Node
    names: tuple[str, ...]
    edges: tuple[Edge, ...]


def find_columns(ask: Ask, datasets: Iterable[Node], as_of_us: int = ALWAYS_US) -> tuple[DatasetColumns, ...]:
    """The columns of datasets; one without any is left out."""
    nodes = Nodes(ask)
    given = [node for node in datasets if node.kind is NodeKind.DATASET]
    told: dict[int, dict[str, None]] = {number: {} for number in nodes.take(given)}
    schemas = properties_of(ask, nodes.of(told), "schema").items()
    named = ((nodes.known[number], columns_in(schema)) for (number, _), schema in schemas)
    listed = [dataset.with_column(name) for dataset, some in named for name in some]
    nodes.take(listed)  # so the schema's spelling stands for a column
    columns = nodes.columns_of(told)
    walk = Walk(nodes, columns, down=False, kinds=COLUMNS, depth=1, as_of_us=as_of_us)
    for number in (node.number for node in (*listed, *columns) if node.column):
        told[nodes.dataset_of(number)][nodes.known[nodes.one[number]].column] = None
    edges: defaultdict[int, list[Edge]] = defaultdict(list)
    for edge in walk.reach().edges:
        edges[nodes.dataset_of(edge.target.number)].append(edge)
    found = ((node, nodes.one[node.number]) for node in given)
    return tuple(
        DatasetColumns(node, tuple(told[number]), tuple(edges[number]))
        for node, number in found
        if told[number] or edges[number]
    )
