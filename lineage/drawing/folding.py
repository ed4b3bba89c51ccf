"""The graph around a node in few groups: wide fans, long chains and what is beyond them are folded."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.transport.counting import counted

from ..graph.elements import EdgeKind, Node
from .lines import FOLDED_FROM

if TYPE_CHECKING:
    from ..graph.around import Graph

_NEAR_FOLDED_FROM: Final = 51
"""Of the node that the graph is about, so many neighbours are folded: these are what was asked for."""

_GROUPS_MAX: Final = 250
"""From so many groups on, no node is opened."""

_CHAINS_FROM: Final = 100
"""From so many groups on, chains are folded."""

_CHAINED_FROM: Final = 6

OPENED_AT_ONCE: Final = 50
"""Of a group that is opened, so many nodes are drawn."""

_GROUP: Final = "of-"


class Group(msgspec.Struct, frozen=True):
    """Nodes in one place of a picture.

    Attributes:
        nodes: one; or neighbours of one node that have one type; or a chain, in its order.
        beyond: those that only these lead to.
        is_chain: whether it is a chain.
        inside: how many edges begin and end in it; of a node alone, none.
    """

    nodes: tuple[Node, ...]
    beyond: int = 0
    is_chain: bool = False
    inside: int = 0

    @property
    def node(self) -> Node | None:
        """The node; None if it is not alone."""
        return self.nodes[0] if len(self.nodes) == 1 and not self.beyond else None

    @property
    def key(self) -> str:
        """What names the group among those of its graph."""
        return f"{'' if self.node else _GROUP}{self.nodes[0].number:x}"


class Folded(msgspec.Struct, frozen=True):
    """A graph in groups: each node is in one of them, and each edge within one or between two.

    Attributes:
        groups: the first one is the node that the graph is about.
        links: by the places of two groups and the kind of edge, how many edges lead from one to the other; of
            a node alone also to itself.
    """

    groups: list[Group]
    links: dict[tuple[int, EdgeKind, int], int]


def fold(
    graph: Graph,
    *,
    folded_from: int | None = FOLDED_FROM,
    for_list: bool = False,
    opened: Collection[str] = (),
) -> Folded:
    """Put the nodes of a graph into groups, the same ones for the same graph.

    Neighbours of a node that have one type are folded if there are many, those of the largest namespace
    first, and what only folded nodes lead to is counted with them: so a wide node is opened one hop at a
    time. In a large graph, nodes in a row are folded, too, and beyond a number of groups everything is.

    Args:
        graph: the graph.
        folded_from: so many neighbours are folded, but of `about` a few more; None: nothing is folded.
        for_list: whether the groups are for a list, which may be long, so that only wide fans are folded.
        opened: the keys of groups; of each, the first nodes are drawn, and the rest is another group.
    """
    is_whole = for_list or folded_from is None
    groups_max = len(graph.distances) if is_whole else _GROUPS_MAX
    folding = _Folding(graph, folded_from, groups_max=groups_max, opened=opened)
    for start in graph.distances:  # all hang together, unless somebody put the graph together by hand
        layer = [] if start in folding.places else [start]
        for node in layer:
            folding.put([node])
        while layer:
            # What an open node leads to is beside it, even if folded ones lead there, too.
            in_order = sorted(layer, key=folding.is_open, reverse=True)
            layer = [far for node in in_order for far in folding.follow(node)]
    groups = [Group(tuple(some), beyond) for some, beyond in folding.members]
    folded = _linked(graph, groups, folding.places)
    if is_whole or len(groups) < _CHAINS_FROM:
        return folded
    return _linked(graph, *_chained(folded, folding.places))


class _Folding:
    """The groups while they are made, from the node that the graph is about on.

    Args:
        graph: the graph.
        folded_from: see `fold`.
        groups_max: from so many groups on, no node is opened.
        opened: see `fold`.

    Attributes:
        members: of each group, the nodes, and how many are beyond them.
        places: by node, the place of its group.
    """

    def __init__(
        self, graph: Graph, folded_from: int | None, *, groups_max: int, opened: Collection[str]
    ) -> None:
        self.members: list[tuple[list[Node], int]] = []
        self.places: dict[Node, int] = {}
        self._about = graph.about
        self._folded_from = len(graph.distances) + 1 if folded_from is None else folded_from
        self._groups_max = groups_max
        self._opened = opened
        self._near: dict[Node, dict[Node, bool]] = {node: {} for node in graph.distances}
        for edge in graph.edges:
            self._near[edge.source].setdefault(edge.target, True)
            self._near[edge.target].setdefault(edge.source, False)

    def put(self, nodes: list[Node]) -> None:
        """Make a group."""
        self.places |= dict.fromkeys(nodes, len(self.members))
        self.members.append((nodes, 0))

    def is_open(self, node: Node) -> bool:
        """Whether what a node leads to is drawn: it is alone, and there are not too many groups."""
        place = self.places[node]
        return len(self.members[place][0]) == 1 and place < self._groups_max

    def follow(self, node: Node) -> Collection[Node]:
        """Put the neighbours of a node that are in no group yet into groups, and return them."""
        fan = {far: is_down for far, is_down in self._near[node].items() if far not in self.places}
        if self.is_open(node):
            many = self._folded_from
            many = max(many, _NEAR_FOLDED_FROM) if node == self._about else many
            for piece in _pieces(fan, many if len(self.members) < self._groups_max else 1):
                for part in self._parts_of(piece):
                    self.put(part)
        else:
            place = self.places[node]
            self.places |= dict.fromkeys(fan, place)
            nodes, beyond = self.members[place]
            self.members[place] = (nodes, beyond + len(fan))
        return fan

    def _parts_of(self, nodes: list[Node]) -> Iterator[list[Node]]:
        """Neighbours in one group or, if that is opened, the first of them and the group of the rest."""
        while len(nodes) > 1 and Group(tuple(nodes)).key in self._opened:
            yield from ([node] for node in nodes[:OPENED_AT_ONCE])
            nodes = nodes[OPENED_AT_ONCE:]
        if nodes:
            yield nodes


def said_of_group(group: Group) -> str:
    """Several nodes in one line: ``38 datasets in s3://lake, and 3 nodes beyond``."""
    kinds = Counter(node.kind for node in group.nodes)
    told = " and ".join(counted(count, kind) for kind, count in kinds.items())
    spaces = {node.namespace for node in group.nodes}
    where = f" in {spaces.pop()}" if len(spaces) == 1 else f" in {counted(len(spaces), 'namespace')}"
    beyond = f", and {counted(group.beyond, 'node')} beyond" if group.beyond else ""
    inside = f", with {counted(group.inside, 'edge')} among them" if group.inside else ""
    return f"{'a chain of ' if group.is_chain else ''}{told}{where}{beyond}{inside}"


def _pieces(fan: Mapping[Node, bool], folded_from: int) -> Iterator[list[Node]]:
    """Neighbours of a node, by direction and type: of each, fewer pieces than `folded_from`, or one."""
    alike: defaultdict[tuple[bool, str], list[Node]] = defaultdict(list)
    for node, is_down in fan.items():
        alike[is_down, node.kind].append(node)
    folds: list[list[Node]] = []
    for nodes in alike.values():
        spaces: defaultdict[str, list[Node]] = defaultdict(list)
        for node in nodes:
            spaces[node.namespace].append(node)
        left = len(nodes)
        wide: list[list[Node]] = []
        for some in sorted(spaces.values(), key=lambda one: (-len(one), one[0].namespace)):
            if left >= folded_from:
                wide.append(some)
                left -= len(some) - 1
            else:
                yield from ([node] for node in some)
        if left >= folded_from:  # more namespaces than pieces
            kept = max(folded_from - 2, 0)
            wide[kept:] = [list(itertools.chain(*wide[kept:]))]
        folds += wide
    yield from folds


def _linked(graph: Graph, groups: list[Group], places: Mapping[Node, int]) -> Folded:
    """The groups with the edges between and within them."""
    links: Counter[tuple[int, EdgeKind, int]] = Counter()
    inside: Counter[int] = Counter()
    for edge in graph.edges:
        source, target = places[edge.source], places[edge.target]
        if source == target and groups[source].node is None:
            inside[source] += 1
        else:
            links[source, edge.kind, target] += 1
    told = [msgspec.structs.replace(group, inside=inside[at]) for at, group in enumerate(groups)]
    return Folded(told, dict(links))


def _chained(folded: Folded, places: Mapping[Node, int]) -> tuple[list[Group], dict[Node, int]]:
    """The groups, with long rows of nodes as one, and the places of the nodes."""
    before: defaultdict[int, dict[int, None]] = defaultdict(dict)
    after: defaultdict[int, dict[int, None]] = defaultdict(dict)
    for source, _, target in folded.links:
        before[target][source] = None
        after[source][target] = None
    rows = {
        at
        for at, group in enumerate(folded.groups)
        if at
        and group.node is not None
        and len(before[at]) == len(after[at]) == 1
        and before[at] != after[at]
    }

    def follow(start: int, beside: Mapping[int, Mapping[int, None]]) -> list[int]:
        row = [start]
        while (far := next(iter(beside[row[-1]]))) in rows and far != start:  # a member of a row has one
            row.append(far)
        return row

    groups: list[Group] = []
    moved: dict[int, int] = {}
    for at, group in enumerate(folded.groups):
        if at in moved:
            continue
        row = follow(follow(at, before)[-1], after) if at in rows else [at]
        is_chain = len(row) >= _CHAINED_FROM
        moved |= dict.fromkeys(row if is_chain else [at], len(groups))
        nodes = tuple(folded.groups[one].nodes[0] for one in row)
        groups.append(Group(nodes, is_chain=True) if is_chain else group)
    return groups, {node: moved[place] for node, place in places.items()}
