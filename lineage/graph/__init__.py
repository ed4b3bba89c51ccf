"""The graph of datasets, jobs and columns: what depends on what."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .around import Graph, WholeGraph
    from .asking import NO_NAMESPACE, Dependencies, NameList, rules_of, shown
    from .details import NodeChange, NodeDetails, NodeRun
    from .documents import SEARCH_SCHEMA
    from .elements import AHEAD_US, HOUR_US, Ask, Edge, EdgeKind, Node, NodeKind, as_json, number_of
    from .impact import IMPACT_COLUMNS, Impact, ImpactedNode
    from .listing import DatasetList, Duplicate, DuplicateList, ListedDataset, Producer
    from .naming import settle_dataset
    from .onward import FileEnd, Onward, find_onward
    from .origins import JobText, Origins, OriginStep
    from .questions import (
        ALL,
        QUESTIONS,
        OfAnalyzers,
        OfAround,
        OfBeyond,
        OfDependencies,
        OfDetails,
        OfDuplicates,
        OfImpact,
        OfNames,
        OfOrigins,
        OfRuns,
        OfSchemaChanges,
        OfSearch,
        OfStale,
        OfUnused,
        OfWhole,
        Question,
    )
    from .recent import RecentRun, RecentRuns, RunStateName, SchemaChange, SchemaChanges
    from .runs import LastRun
    from .searching import FoundNode, SearchResult
    from .storing import GRAPH_SCHEMA, GRAPH_VIEWS, GraphTables, set_trimmers, trimmers_in
    from .uses import AnalyzerList, AnalyzerProblem, AnalyzerUse, list_lacks
    from .walking import Nodes, Reach, ReachedNode, list_ends

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
