"""The graph of datasets, jobs and columns: what depends on what."""

from .around import Graph as Graph, WholeGraph as WholeGraph
from .asking import (
    NO_NAMESPACE as NO_NAMESPACE,
    Dependencies as Dependencies,
    NameList as NameList,
    rules_of as rules_of,
    shown as shown,
)
from .details import NodeChange as NodeChange, NodeDetails as NodeDetails, NodeRun as NodeRun
from .documents import SEARCH_SCHEMA as SEARCH_SCHEMA
from .elements import (
    AHEAD_US as AHEAD_US,
    HOUR_US as HOUR_US,
    Ask as Ask,
    Edge as Edge,
    EdgeKind as EdgeKind,
    Node as Node,
    NodeKind as NodeKind,
    as_json as as_json,
    number_of as number_of,
)
from .impact import IMPACT_COLUMNS as IMPACT_COLUMNS, Impact as Impact, ImpactedNode as ImpactedNode
from .listing import (
    DatasetList as DatasetList,
    Duplicate as Duplicate,
    DuplicateList as DuplicateList,
    ListedDataset as ListedDataset,
    Producer as Producer,
)
from .naming import settle_dataset as settle_dataset
from .onward import FileEnd as FileEnd, Onward as Onward, find_onward as find_onward
from .origins import JobText as JobText, Origins as Origins, OriginStep as OriginStep
from .questions import (
    ALL as ALL,
    QUESTIONS as QUESTIONS,
    OfAnalyzers as OfAnalyzers,
    OfAround as OfAround,
    OfBeyond as OfBeyond,
    OfDependencies as OfDependencies,
    OfDetails as OfDetails,
    OfDuplicates as OfDuplicates,
    OfImpact as OfImpact,
    OfNames as OfNames,
    OfOrigins as OfOrigins,
    OfRuns as OfRuns,
    OfSchemaChanges as OfSchemaChanges,
    OfSearch as OfSearch,
    OfStale as OfStale,
    OfUnused as OfUnused,
    OfWhole as OfWhole,
    Question as Question,
)
from .recent import (
    RecentRun as RecentRun,
    RecentRuns as RecentRuns,
    RunStateName as RunStateName,
    SchemaChange as SchemaChange,
    SchemaChanges as SchemaChanges,
)
from .runs import LastRun as LastRun
from .searching import FoundNode as FoundNode, SearchResult as SearchResult
from .storing import (
    GRAPH_SCHEMA as GRAPH_SCHEMA,
    GRAPH_VIEWS as GRAPH_VIEWS,
    GraphTables as GraphTables,
    set_trimmers as set_trimmers,
    trimmers_in as trimmers_in,
)
from .uses import (
    AnalyzerList as AnalyzerList,
    AnalyzerProblem as AnalyzerProblem,
    AnalyzerUse as AnalyzerUse,
    list_lacks as list_lacks,
)
from .walking import Nodes as Nodes, Reach as Reach, ReachedNode as ReachedNode, list_ends as list_ends
