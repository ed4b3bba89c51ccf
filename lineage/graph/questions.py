"""The questions that the graph answers, each asked in one way: of an index, over HTTP, and in Python.

A question is a struct whose fields are its parameters, and which finds the answer by itself. What carries it,
from a command or a request to the index, knows no single one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Generic, Literal, TypeVar, get_args

import msgspec

from waybill.exporter.query import check_texts

from .around import Graph, WholeGraph, count_beyond, find_around, find_whole_graph
from .asking import Dependencies, NameList, find_dependencies, find_names
from .details import NodeDetails, find_details
from .elements import Node
from .impact import Impact, find_impact
from .listing import DatasetList, DuplicateList, list_duplicates, list_stale, list_unused
from .origins import Origins, find_origins
from .recent import RecentRuns, RunStateName, SchemaChanges, list_recent_runs, list_schema_changes
from .searching import SearchResult, search
from .uses import AnalyzerList, list_analyzers

if TYPE_CHECKING:
    from .elements import Ask

AnswerT = TypeVar("AnswerT")

Name = Annotated[str, msgspec.Meta(min_length=1)]
ALL: Final = "all"
FOUND_DEFAULT: Final = 20
"""So many nodes are found, unless more are asked for."""
Limit = Annotated[int, msgspec.Meta(ge=1, le=1_000)]
EpochMs = Annotated[int, msgspec.Meta(ge=0, le=10**15 - 1, description="Epoch milliseconds.")]
Edges = Annotated[int, msgspec.Meta(ge=0, description="So many edges, or `all`.")] | Literal["all"]


class Question(msgspec.Struct, Generic[AnswerT], frozen=True):
    """A question about the graph.

    Attributes:
        path: where a collector answers it, below its address.
        summary: what it shows, in a few words.
        answer: the type of its answer.
        finder: what finds it, by an index and the parameters in their order.
    """

    path: ClassVar[str]
    summary: ClassVar[str]
    answer: ClassVar[Any]
    finder: ClassVar[Callable[..., Any]]

    def __init_subclass__(cls, **more: Any) -> None:  # noqa: ANN401 - those of a struct
        super().__init_subclass__(**more)
        (cls.answer,) = get_args(cls.__orig_bases__[0])  # type: ignore[attr-defined] # those with the type

    def __post_init__(self) -> None:
        check_texts(self)

    def find(self, ask: Ask) -> AnswerT:
        """Find the answer.

        Raises:
            NotFoundError: nothing has the name that is asked about, or several have it.
        """
        found: AnswerT = type(self).finder(ask, *msgspec.structs.astuple(self))
        return found


class OfDependencies(Question[Dependencies], frozen=True):
    """What a dataset, column or job depends on, and what depends on it; see `Lineage.dependencies`."""

    path = "/api/v1/lineage-graph"
    summary = "Show what a dataset or a job depends on, and what depends on it"

    name: Name
    up: Edges = 1
    down: Edges = 1
    as_of: EpochMs | None = None
    columns: bool = False

    def find(self, ask: Ask) -> Dependencies:
        """Find the answer."""
        up, down = (None if edges == ALL else edges for edges in (self.up, self.down))
        return find_dependencies(
            ask, self.name, up=up, down=down, as_of_ms=self.as_of, with_columns=self.columns
        )


class OfImpact(Question[Impact], frozen=True):
    """What a change of a dataset, a column or a job reaches; see `Lineage.impact`."""

    path = "/api/v1/impact"
    summary = "Show what a change of a dataset, a column or a job reaches"
    finder = staticmethod(find_impact)

    name: Name


class OfNames(Question[NameList], frozen=True):
    """The names of a dataset; see `Lineage.names`."""

    path = "/api/v1/names"
    summary = "List the names of a dataset"
    finder = staticmethod(find_names)

    name: Name


class OfOrigins(Question[Origins], frozen=True):
    """Where the values of a column come from; see `Lineage.origins`."""

    path = "/api/v1/origins"
    summary = "Show where the values of a column come from, step by step"
    finder = staticmethod(find_origins)

    name: Name


class OfUnused(Question[DatasetList], frozen=True):
    """The datasets that nobody uses; see `Lineage.unused_datasets`."""

    path = "/api/v1/datasets/unused"
    summary = "List the datasets that no job reads or writes or, with `written`, those that no job reads"

    written: bool = False

    def find(self, ask: Ask) -> DatasetList:
        """Find the answer."""
        return list_unused(ask, written=self.written)


class OfStale(Question[DatasetList], frozen=True):
    """The datasets that nobody has written for long; see `Lineage.stale_datasets`."""

    path = "/api/v1/datasets/stale"
    summary = "List the datasets that jobs wrote, and none since an instant"
    finder = staticmethod(list_stale)

    before: EpochMs


class OfDuplicates(Question[DuplicateList], frozen=True):
    """The jobs that do the same; see `Lineage.duplicate_producers`."""

    path = "/api/v1/datasets/duplicate-producers"
    summary = "List the jobs that write one dataset, or do the same from the same inputs"
    finder = staticmethod(list_duplicates)


class OfSearch(Question[SearchResult], frozen=True):
    """The datasets and jobs that have some words; see `Lineage.search`."""

    path = "/api/v1/search"
    summary = "Find datasets and jobs by words of their names, columns, tags, owners and descriptions"
    finder = staticmethod(search)

    text: Name
    limit: Limit = FOUND_DEFAULT


class OfWhole(Question[WholeGraph], frozen=True):
    """All datasets and jobs; see `Lineage.graph`."""

    path = "/api/v1/whole-graph"
    summary = "List all datasets and jobs, and which job reads or writes which dataset"
    finder = staticmethod(find_whole_graph)


class OfRuns(Question[RecentRuns], frozen=True):
    """How jobs ran lately; see `Lineage.recent_runs`."""

    path = "/api/v1/runs"
    summary = "List the newest runs, with the datasets of their jobs"
    finder = staticmethod(list_recent_runs)

    since: EpochMs = 0
    state: RunStateName | None = None
    limit: Limit = FOUND_DEFAULT


class OfSchemaChanges(Question[SchemaChanges], frozen=True):
    """The datasets whose columns changed; see `Lineage.schema_changes`."""

    path = "/api/v1/datasets/schema-changes"
    summary = "List the datasets whose columns changed since an instant, and whom that concerns"
    finder = staticmethod(list_schema_changes)

    since: EpochMs = 0


class OfAnalyzers(Question[AnalyzerList], frozen=True):
    """Who told the edges of the graph; see `Lineage.analyzers`."""

    path = "/api/v1/analyzers"
    summary = "List the facets and analyzers that told edges of the graph, and how many each"
    finder = staticmethod(list_analyzers)


class OfAround(Question[Graph], frozen=True):
    """What is one edge away from a node, as was found, and from those of the nodes found that are opened.

    No command and no request asks it alone: the answer is for a drawing that unfolds.
    """

    finder = staticmethod(find_around)

    found: Dependencies
    opened: tuple[str, ...] = ()
    with_states: int = 0


class OfBeyond(Question[dict[Node, int]], frozen=True):
    """How many more nodes are one edge away from those at the rim of a drawing."""

    finder = staticmethod(count_beyond)

    some: tuple[Node, ...]
    known: tuple[Node, ...]


class OfDetails(Question[NodeDetails], frozen=True):
    """What events tell of one dataset, job or column, and how that has changed."""

    finder = staticmethod(find_details)

    name: Name


QUESTIONS: Final[tuple[type[Question[Any]], ...]] = (
    *(OfDependencies, OfImpact, OfNames, OfOrigins, OfUnused, OfStale, OfDuplicates, OfSearch, OfWhole),
    *(OfAnalyzers, OfRuns, OfSchemaChanges),
)
