"""The endpoints: OpenLineage's, DeltaFi's, and those for operators."""

from __future__ import annotations

from waybill.collector.endpoints.health import HealthDoors, Readiness
from waybill.collector.endpoints.lineage import BATCH_PATH, LINEAGE_PATH, BatchResult, LineageDoors
from waybill.collector.endpoints.provenance import PROVENANCE_PATH, ProvenanceDoors, Stats, Taken

__all__ = [
    "BATCH_PATH",
    "LINEAGE_PATH",
    "PROVENANCE_PATH",
    "BatchResult",
    "HealthDoors",
    "LineageDoors",
    "ProvenanceDoors",
    "Readiness",
    "Stats",
    "Taken",
]
