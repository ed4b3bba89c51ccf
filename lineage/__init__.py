"""Answers about files: where they came from, and what became of them."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .answers import CollectorReadError as CollectorReadError
    from .comparing import RunDiff as RunDiff, RunDifference as RunDifference
    from .file_table import JourneyFile as JourneyFile
    from .graph import (
        AnalyzerList as AnalyzerList,
        AnalyzerProblem as AnalyzerProblem,
        AnalyzerUse as AnalyzerUse,
        Dependencies as Dependencies,
        Duplicate as Duplicate,
        FoundNode as FoundNode,
        Impact as Impact,
        ImpactedNode as ImpactedNode,
        JobText as JobText,
        LastRun as LastRun,
        ListedDataset as ListedDataset,
        Node as Node,
        Onward as Onward,
        Origins as Origins,
        OriginStep as OriginStep,
        Producer as Producer,
        Reach as Reach,
        ReachedNode as ReachedNode,
        RecentRun as RecentRun,
        SchemaChange as SchemaChange,
        SearchResult as SearchResult,
    )
    from .index import (
        Index as Index,
        IndexReader as IndexReader,
        OpenFile as OpenFile,
        open_index as open_index,
    )
    from .journey import Journey as Journey, ToldFile as ToldFile, ToldJourney as ToldJourney
    from .lineage import Lineage as Lineage, find as find
    from .records import MissingPackageError as MissingPackageError, Records as Records
    from .tracing import Kin as Kin, trace as trace, trace_as_of as trace_as_of

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
