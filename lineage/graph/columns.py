"""The columns of datasets, and what each comes from in one step."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import msgspec

from .elements import Edge, Node, NodeKind, as_json
from .properties import columns_in, properties_of
from .walking import ALWAYS_US, COLUMNS, Ask, Nodes, Walk

if TYPE_CHECKING:
    from collections.abc import Iterable

_COLUMNS_OF: Final = """
SELECT DISTINCT namespace, name, part FROM all_node
WHERE name IN (SELECT value FROM json_each(?)) AND kind = 'column' ORDER BY part
"""


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


def list_columns(ask: Ask, names: Iterable[str]) -> list[tuple[str, str, str]]:
    """The known columns of all datasets with some names: namespace, name, column."""
    return [(namespace, name, part) for namespace, name, part in ask(_COLUMNS_OF, (as_json(names),))]


def columns_of(nodes: Nodes, datasets: Iterable[int]) -> list[Node]:
    """The columns of datasets under each of their names, and these themselves."""
    named = [nodes.known[number] for number in nodes.of(datasets)]
    wanted = {(node.namespace, node.name): node for node in named}
    rows = list_columns(nodes.ask, {node.name for node in named})
    columns = ((wanted.get((space, name)), part) for space, name, part in rows)
    return [*named, *(node.with_column(part) for node, part in columns if node is not None)]


def find_columns(ask: Ask, datasets: Iterable[Node], as_of_us: int = ALWAYS_US) -> tuple[DatasetColumns, ...]:
    """The columns of datasets; one without any is left out."""
    nodes = Nodes(ask)
    given = [node for node in datasets if node.kind is NodeKind.DATASET]
    told: dict[int, dict[str, None]] = {number: {} for number in nodes.take(given)}
    for (number, _), schema in properties_of(ask, nodes.of(told), "schema").items():
        told[nodes.one[number]] |= dict.fromkeys(columns_in(schema))
    columns = columns_of(nodes, told)
    walk = Walk(nodes, columns, down=False, kinds=COLUMNS, depth=1, as_of_us=as_of_us)
    for node in columns:
        if node.column:
            told[nodes.dataset_of(node.number)][node.column] = None
    edges: defaultdict[int, list[Edge]] = defaultdict(list)
    for edge in walk.reach().edges:
        edges[nodes.dataset_of(edge.target.number)].append(edge)
    found = ((node, nodes.one[node.number]) for node in given)
    return tuple(
        DatasetColumns(node, tuple(told[number]), tuple(edges[number]))
        for node, number in found
        if told[number] or edges[number]
    )
