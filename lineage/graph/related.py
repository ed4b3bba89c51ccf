"""What events tell of a dataset or a job besides its data: what starts it or owns it, and so on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .elements import EdgeKind
from .properties import owners_in, properties_of
from .walking import Nodes, Walk

if TYPE_CHECKING:
    from .elements import Ask, Edge, Node

_KINDS: Final = (EdgeKind.START, EdgeKind.PRECEDE, EdgeKind.OWN, EdgeKind.VERSION)


def find_related(ask: Ask, node: Node, as_of_us: int) -> tuple[Edge, ...]:
    """The edges of a dataset or a job along which no data flow, the one that was told last first.

    Of its owners, those count that the last facet names.

    Args:
        ask: executes statements.
        node: the dataset or the job.
        as_of_us: leave out what was told first after this instant, in epoch microseconds.
    """
    nodes = Nodes(ask)
    walks = (
        Walk(nodes, [node], down=down, kinds=_KINDS, depth=1, as_of_us=as_of_us) for down in (False, True)
    )
    edges = {edge for walk in walks for edge in walk.reach().edges}
    if any(edge.kind is EdgeKind.OWN for edge in edges):
        facets = properties_of(ask, nodes.of(nodes.take([node])), "ownership").values()
        owners = {owner for facet in facets for owner in owners_in(facet)}
        edges = {edge for edge in edges if edge.kind is not EdgeKind.OWN or edge.source.name in owners}
    return tuple(sorted(edges, key=lambda edge: (-edge.first_ms, edge)))
