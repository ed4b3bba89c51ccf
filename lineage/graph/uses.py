"""Who told the edges of the graph: facets and analyzers, and how often each was used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

import msgspec

from waybill.transport.counting import counted

from ..analyzers import load_analyzers
from .analysing import AnalysisState
from .elements import COLUMN_LINEAGE, EVENT, LINEAGE
from .observing import CONFIDENCE, INFERRED

if TYPE_CHECKING:
    from .elements import Ask

_EDGES: Final = "SELECT analyzer, count(*) FROM all_edge WHERE confidence > 0 GROUP BY analyzer"
_WAITING: Final = "SELECT count(*) FROM all_analysis WHERE state = 0"
_LACKS: Final = "SELECT state, count(*) FROM all_analysis WHERE state IN (2, 3) GROUP BY 1"
_PROBLEMS: Final = (
    "SELECT problem, count(*) FROM all_analysis WHERE problem <> '' GROUP BY 1 ORDER BY 2 DESC, 1"
)

_FACETS: Final = {
    EVENT: "the inputs, the outputs, and all facets but the following",
    LINEAGE: "the facet `lineage` of OpenLineage",
    COLUMN_LINEAGE: "the facet `columnLineage` of OpenLineage",
    INFERRED: "what `waybill infer` read in a query log",
}


_SENTENCES: Final[Mapping[int, str]] = {
    AnalysisState.CUT: "analyzers found more in {} than is kept; `waybill analyzers` says what is left out",
    AnalysisState.FAILED: "analyzers could not read {}; they try again when a runner starts, and once a day; "
    "`waybill analyzers` says why",
}


class AnalyzerUse(msgspec.Struct, frozen=True):
    """An analyzer, or a facet that is read without one.

    Attributes:
        name: what edges call it.
        covers: what it reads, in one sentence; empty of an analyzer that is not installed any more.
        confidence: how sure it is, from 0 to 1; None if that is not known.
        edges: how many edges it told.
    """

    name: str
    covers: str
    confidence: float | None
    edges: int


class AnalyzerProblem(msgspec.Struct, frozen=True):
    """Why analyzers found nothing.

    Attributes:
        problem: what was wrong.
        events: in how many events.
    """

    problem: str
    events: int


class AnalyzerList(msgspec.Struct, frozen=True):
    """Who told the edges of the graph.

    Attributes:
        analyzers: the facets, then the analyzers, the surest first.
        waiting: how many events wait for the analyzers.
        problems: why they found nothing in some events, the most frequent first.
        unloaded: by name, why an analyzer cannot be loaded.
    """

    analyzers: tuple[AnalyzerUse, ...]
    waiting: int
    problems: tuple[AnalyzerProblem, ...]
    unloaded: dict[str, str]


def list_lacks(ask: Ask) -> list[str]:
    """A sentence about each reason why the graph lacks what analyzers would have told."""
    return [
        _SENTENCES[state].format(counted(events, "event", "events"))
        for state, events in cast("list[tuple[int, int]]", ask(_LACKS, ()))
    ]


def list_analyzers(ask: Ask) -> AnalyzerList:
    """List who told the edges of the graph."""
    edges = dict(cast("list[tuple[str, int]]", ask(_EDGES, ())))
    loaded, unloaded = load_analyzers()
    uses = [
        AnalyzerUse(name, covers, CONFIDENCE[name], edges.pop(name, 0)) for name, covers in _FACETS.items()
    ]
    uses += [AnalyzerUse(one.name, one.covers, one.confidence, edges.pop(one.name, 0)) for one in loaded]
    uses += [AnalyzerUse(name, "", None, count) for name, count in sorted(edges.items())]
    ((waiting,),) = ask(_WAITING, ())
    problems = tuple(AnalyzerProblem(problem, events) for problem, events in ask(_PROBLEMS, ()))
    return AnalyzerList(tuple(uses), waiting, problems, unloaded)
