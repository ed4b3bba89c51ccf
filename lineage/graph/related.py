"""What events tell of a dataset or a job besides its data: what starts it or owns it, and so on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .elements import EdgeKind
from .properties import owners_in, properties_of
from .walking import Names, follow

if TYPE_CHECKING:
    from .elements import Edge, Node
    from .walking import Ask

_KINDS: Final = (EdgeKind.START, EdgeKind.PRECEDE, EdgeKind.OWN, EdgeKind.VERSION)


def find_related(ask: Ask, node: Node, as_of_us: int) -> tuple[Edge, ...]:
    """The edges of a dataset or a job along which no data flow, the one that was told last first.

    Of its owners, those count that the last facet names.

    Args:
        ask: executes statements.
        node: the dataset or the job.
        as_of_us: leave out what was told first after this instant, in epoch microseconds.
    """
    edges = {
        edge
        for down in (False, True)
        for edge in follow(ask, [node], down=down, depth=1, kinds=_KINDS, as_of_us=as_of_us).edges
    }
    if any(edge.kind is EdgeKind.OWN for edge in edges):
        names = Names(ask)
        facets = properties_of(ask, names.of(names.settle({node.number})), "ownership").values()
        owners = {owner for facet in facets for owner in owners_in(facet)}
        edges = {edge for edge in edges if edge.kind is not EdgeKind.OWN or edge.source.name in owners}
    return tuple(sorted(edges, key=lambda edge: (-edge.first_ms, edge)))
