"""The views of a dataset, a job and a column: what is around it, what a change reaches, what events tell."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from http import HTTPStatus
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from waybill.exporter.query import InvalidQueryError
from waybill.lineage.drawing import FOLDED_FROM, boxes_of_folded, fold
from waybill.lineage.graph import (
    IMPACT_COLUMNS,
    Dependencies,
    Edge,
    Impact,
    JobText,
    LastRun,
    Node,
    NodeChange,
    NodeDetails,
    NodeKind,
    OfAround,
    OfBeyond,
    OfDependencies,
    OfDetails,
    OfImpact,
    OfOrigins,
    OfSearch,
    Origins,
    shown,
)
from waybill.transport.counting import duration_text
from waybill.transport.errors import NotFoundError
from waybill.transport.likeness import most_alike

from ..http import Problem, UnknownName, read_params
from .charts import Bar, histogram
from .drawing import Drawing, Unfolding
from .rendering import instant, node_url
from .view import View

if TYPE_CHECKING:
    from waybill.lineage.answers import HomeAnswers
    from waybill.lineage.drawing import Box, Group

    from .view import Rows

STATES_MAX: Final = 100
"""So many jobs of a drawing have the colour of the state in which their last runs ended."""

_NAMES_TRIED_MAX: Final = 200
_NAMES_NAMED_MAX: Final = 5
_LETTERS_MIN: Final = 2


class NodeParams(msgspec.Struct, frozen=True):
    """The parameters of the views.

    Attributes:
        node: the name of the dataset or the job, as the questions of the graph take it.
        column: of a column, its own name, where that of the node is not the column's.
        unfold: what of the drawing is unfolded; see `Unfolding`.
    """

    node: str
    column: str = ""
    unfold: str = ""

    @property
    def name(self) -> str:
        """The name as one text."""
        return f"{self.node}.{self.column}" if self.column else self.node

    @property
    def named(self) -> dict[str, str]:
        """The parameters that say what it is about."""
        return {"node": self.node} | ({"column": self.column} if self.column else {})


class Told(NamedTuple):
    """A version of a dataset, or an instant without one, and what changed then."""

    at_ms: int
    version: str
    changes: list[NodeChange]


class NodeShown(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of a dataset, a job or a column.

    Attributes:
        lineage: what is one edge away from it, with the columns, as `waybill lineage --columns --json` says.
        details: what events tell of it.
        origins: of a column, where its values come from, as `waybill origins --json` says.
        impact: what a change reaches, as `waybill impact --json` says.
        drawing: what is around it, as far as it is unfolded.
    """

    lineage: Dependencies
    details: NodeDetails
    origins: Origins | None
    impact: Impact
    drawing: Drawing

    @property
    def node(self) -> Node:
        """What it is about."""
        return self.lineage.node

    def sources(self) -> dict[str, list[Edge]]:
        """By column of the dataset, from what it comes in one step."""
        found: defaultdict[str, list[Edge]] = defaultdict(list)
        own = (one.edges for one in self.lineage.columns if one.dataset == self.node)
        for edge in chain.from_iterable(own):
            found[edge.target.column].append(edge)
        return found

    def texts(self) -> tuple[JobText, ...]:
        """The SQL of the jobs that make it."""
        return self.details.texts if self.origins is None else self.origins.texts

    def history(self) -> list[Told]:
        """The versions and the changes together, the newest first."""
        details = self.details
        told = {version: Told(at_ms, version, []) for version, at_ms in details.versions.items()}
        others: dict[int, Told] = {}
        for one in details.changes:
            event = told.get(one.version) or others.setdefault(one.at_ms, Told(one.at_ms, "", []))
            event.changes.append(one)
        versions = [one for one in told.values() if one.changes or self.node.kind is not NodeKind.COLUMN]
        return sorted([*versions, *others.values()], key=lambda one: -one.at_ms)

    def ended(self) -> list[LastRun]:
        """The runs that have ended, the oldest first."""
        return [one.run for one in reversed(self.details.runs) if one.run.ended_ms is not None]

    def longest_s(self) -> float:
        """How long the longest of them took, in seconds."""
        return max((run.ended_ms or 0) - run.started_ms for run in self.ended()) / 1_000

    def chart(self) -> str:
        """How long the runs took that have ended."""
        bars = [
            Bar(took_ms, took_ms if run.state == "ERROR" else 0, f"{instant(run.started_ms)}: {told}")
            for run in self.ended()
            for took_ms in [max((run.ended_ms or 0) - run.started_ms, 0)]
            for told in [f"{run.state}, {duration_text(took_ms / 1_000)}"]
        ]
        return histogram(bars, "", "", "How long the runs took, the oldest first", is_alone=False)


def ask_node(kind: NodeKind, answers: HomeAnswers, params: NodeParams) -> NodeShown:
    """Ask what is shown of a dataset, a job or a column.

    Raises:
        Problem: nothing of this kind has the name; it has the nearest names.
        NotFoundError: several have it.
    """
    name = f"{kind}:{params.name}"
    try:
        lineage = answers.answer(OfDependencies(name, columns=True))
    except NotFoundError as error:
        raise _unknown(kind, answers, params.name, error) from None
    return NodeShown(
        lineage=lineage,
        details=answers.answer(OfDetails(name)),
        origins=answers.answer(OfOrigins(name)) if kind is NodeKind.COLUMN else None,
        impact=answers.answer(OfImpact(name)),
        drawing=_drawn(answers, lineage, Unfolding(f"/{kind}", params.named, params.unfold)),
    )


def _drawn(answers: HomeAnswers, lineage: Dependencies, unfolding: Unfolding) -> Drawing:
    graph = answers.answer(OfAround(lineage, tuple(unfolding.keys), STATES_MAX))
    folded = fold(graph, folded_from=FOLDED_FROM, opened=unfolding.keys)
    boxes, arrows = boxes_of_folded(graph, folded)
    # The nodes that are drawn alone, and not unfolded.
    alone = (group for group in folded.groups[1:] if group.key not in unfolding.keys)
    rim = tuple(group.node for group in alone if group.node is not None)
    beyond = answers.answer(OfBeyond(rim, tuple(graph.distances))) if rim else {}
    drawn = [_box_of(box, group, beyond, unfolding) for box, group in zip(boxes, folded.groups, strict=True)]
    return Drawing(drawn, arrows)


def _box_of(box: Box, group: Group, beyond: dict[Node, int], unfolding: Unfolding) -> Box:
    if group.node is None:
        return unfolding.some(box, group.key)
    if box.is_about:
        return box
    return unfolding.around(box, group.key, node_url(group.node), beyond.get(group.node, 0))


def _unknown(kind: NodeKind, answers: HomeAnswers, name: str, error: NotFoundError) -> Problem:
    """What to say where nothing of a kind has a name: names that are like it."""
    if (is_other := _find_other(kind, answers, name)) is not None:
        detail = f"{shown(is_other)} is a {is_other.kind}, no {kind}; its page is {node_url(is_other)}"
        return Problem(HTTPStatus.NOT_FOUND, detail, reason="the node has another kind")
    nearest = _nearest(kind, answers, name)
    detail = str(error).replace(f"{kind}:", "", 1)
    unknown = UnknownName(kind, name, nearest) if nearest else None
    return Problem(HTTPStatus.NOT_FOUND, detail, reason="a name is unknown", unknown=unknown)


def _find_other(kind: NodeKind, answers: HomeAnswers, name: str) -> Node | None:
    try:
        node = answers.answer(OfDependencies(name, 0, 0)).node
    except NotFoundError:
        return None
    return None if node.kind is kind else node


def _nearest(kind: NodeKind, answers: HomeAnswers, name: str) -> tuple[str, ...]:
    """The names most like one: of those that have the beginnings of its words, the shorter the less alike."""
    words = "".join(one if one.isalnum() else " " for one in name[:_NAMES_TRIED_MAX]).split()
    for length in (8, 5, 3, _LETTERS_MIN):
        text = " ".join(word[:length] for word in words)
        try:
            found = answers.answer(OfSearch(text, _NAMES_TRIED_MAX)).nodes if text else ()
        except InvalidQueryError:
            return ()
        names = [shown(one.node) for one in found if one.node.kind in {kind, NodeKind.DATASET}]
        if names:
            return tuple(most_alike(name, names, _NAMES_NAMED_MAX, likeness_min=0.0))
    return ()


def rows_of(found: NodeShown) -> Rows:
    """What a change reaches, as a table: as `waybill impact --csv` does it."""
    yield IMPACT_COLUMNS
    yield from found.impact.rows()


def draw(found: NodeShown, _: NodeParams, *, is_alone: bool) -> str:
    """The drawing of what is around it."""
    return found.drawing.svg(f"What is around {shown(found.node)}", is_alone=is_alone)


def _view(kind: NodeKind) -> View:
    read: Any = partial(read_params, kind=NodeParams)
    return View(f"/{kind}", str(kind).capitalize(), read, partial(ask_node, kind), rows_of, draw)


NODES: Final = tuple(map(_view, (NodeKind.DATASET, NodeKind.JOB, NodeKind.COLUMN)))
