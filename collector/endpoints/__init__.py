"""The endpoints: OpenLineage's, DeltaFi's, and those for operators."""

from .deltafi import DeltaFiRecord, DeltaFiStats, DeltaFiSum
from .health import HealthEndpoints, Readiness, Where
from .lineage import BATCH_PATH, BatchResult, LineageEndpoints
from .provenance import PROVENANCE_PATH, SUMMARY_PATH, ProvenanceEndpoints, Taken, ToldOpenFile, ToldRecord
from .reading import Readings
from .trace import MEDIA, TRACE_PATH, TRACES_PATH, TraceEndpoints
