"""The endpoints: OpenLineage's, DeltaFi's, and those for operators."""

from .deltafi import DeltaFiRecord as DeltaFiRecord, DeltaFiStats as DeltaFiStats, DeltaFiSum as DeltaFiSum
from .health import HealthEndpoints as HealthEndpoints, Readiness as Readiness, Where as Where
from .lineage import (
    BATCH_PATH as BATCH_PATH,
    LINEAGE_PATH as LINEAGE_PATH,
    BatchResult as BatchResult,
    LineageEndpoints as LineageEndpoints,
)
from .provenance import (
    PROVENANCE_PATH as PROVENANCE_PATH,
    SUMMARY_PATH as SUMMARY_PATH,
    ProvenanceEndpoints as ProvenanceEndpoints,
    Taken as Taken,
)
from .reading import Readings as Readings
from .trace import (
    MEDIA as MEDIA,
    TRACE_PATH as TRACE_PATH,
    TRACES_PATH as TRACES_PATH,
    TraceEndpoints as TraceEndpoints,
)
