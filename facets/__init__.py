"""The data model: the DeltaFile facet, the provenance record, and the fold from run events to records.

Nothing here does I/O. The run facets load the OpenLineage client when one of them is first used; the modules
that need pyarrow (`arrow`, `columns`) are imported by name.
"""

from typing import TYPE_CHECKING

from .annotations import EVIDENCE, AnnotationRule
from .event import (
    DATA_SINK,
    DELTA_FILE_FACET,
    EVIDENCE_FACET,
    FINGERPRINT_FACET,
    INFERRED_FACET,
    PRESENTED_FACET,
    PRODUCER,
    SEVERITY,
    SUMMARY_FACET,
    DatasetEvent,
    Event,
    EventType,
    InputFingerprint,
    JobEvent,
    RunEvent,
    decode_event,
    fingerprints_of,
    parse_instant_us,
)
from .folding import (
    RunState,
    facet_records,
    fold,
    has_record,
    inferred_reason,
    merge_states,
    observe,
    records_of,
)
from .lazy import lazily as _lazily
from .merge_rule import is_collision, merge_all, merge_records, record_key
from .parents import parents_of
from .record import UNREADABLE, FinalState, ProvenanceRecord, decode_records, keep_annotations

if TYPE_CHECKING:
    from .delta_file import WaybillDeltaFileRunFacet
    from .fingerprint import WaybillFingerprintInputDatasetFacet
    from .inferred import WaybillEvidenceRunFacet, WaybillInferredRunFacet
    from .summary import WaybillSummaryRunFacet

__all__ = [
    "DATA_SINK",
    "DELTA_FILE_FACET",
    "EVIDENCE",
    "EVIDENCE_FACET",
    "FINGERPRINT_FACET",
    "INFERRED_FACET",
    "PRESENTED_FACET",
    "PRODUCER",
    "SEVERITY",
    "SUMMARY_FACET",
    "UNREADABLE",
    "AnnotationRule",
    "DatasetEvent",
    "Event",
    "EventType",
    "FinalState",
    "InputFingerprint",
    "JobEvent",
    "ProvenanceRecord",
    "RunEvent",
    "RunState",
    "WaybillDeltaFileRunFacet",
    "WaybillEvidenceRunFacet",
    "WaybillFingerprintInputDatasetFacet",
    "WaybillInferredRunFacet",
    "WaybillSummaryRunFacet",
    "decode_event",
    "decode_records",
    "facet_records",
    "fingerprints_of",
    "fold",
    "has_record",
    "inferred_reason",
    "is_collision",
    "keep_annotations",
    "merge_all",
    "merge_records",
    "merge_states",
    "observe",
    "parents_of",
    "parse_instant_us",
    "record_key",
    "records_of",
]

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
