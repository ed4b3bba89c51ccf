"""The data model: the DeltaFile facet, the provenance record, and the fold from run events to records.

Nothing here does I/O. The run facets load the OpenLineage client when one of them is first used; the modules
that need pyarrow (`arrow`, `columns`) are imported by name.
"""

from typing import TYPE_CHECKING

from .annotations import EVIDENCE as EVIDENCE, AnnotationRule as AnnotationRule
from .attempts import Attempts as Attempts, Ending as Ending, inferred_reason as inferred_reason
from .dids import (
    canonical_did as canonical_did,
    canonical_dids as canonical_dids,
    spelled_alike as spelled_alike,
)
from .event import (
    DATA_SINK as DATA_SINK,
    DELTA_FILE_FACET as DELTA_FILE_FACET,
    EVIDENCE_FACET as EVIDENCE_FACET,
    FINGERPRINT_FACET as FINGERPRINT_FACET,
    INFERRED_FACET as INFERRED_FACET,
    PRESENTED_FACET as PRESENTED_FACET,
    PRODUCER as PRODUCER,
    SEVERITY as SEVERITY,
    SUMMARY_FACET as SUMMARY_FACET,
    DatasetEvent as DatasetEvent,
    Event as Event,
    EventType as EventType,
    InputFingerprint as InputFingerprint,
    JobEvent as JobEvent,
    RunEvent as RunEvent,
    decode_event as decode_event,
    fingerprints_of as fingerprints_of,
    parse_instant_us as parse_instant_us,
)
from .folding import (
    FINAL_STATES as FINAL_STATES,
    RunState as RunState,
    facet_records as facet_records,
    fold as fold,
    has_record as has_record,
    merge_states as merge_states,
    observe as observe,
    observe_times as observe_times,
    record_so_far as record_so_far,
    records_of as records_of,
)
from .lazy import lazily as _lazily
from .merge_rule import (
    is_collision as is_collision,
    merge_all as merge_all,
    merge_records as merge_records,
    record_key as record_key,
)
from .parents import parents_of as parents_of
from .record import (
    UNREADABLE as UNREADABLE,
    FinalState as FinalState,
    ProvenanceRecord as ProvenanceRecord,
    decode_records as decode_records,
    keep_annotations as keep_annotations,
)

if TYPE_CHECKING:
    from .delta_file import WaybillDeltaFileRunFacet as WaybillDeltaFileRunFacet
    from .fingerprint import WaybillFingerprintInputDatasetFacet as WaybillFingerprintInputDatasetFacet
    from .inferred import (
        WaybillEvidenceRunFacet as WaybillEvidenceRunFacet,
        WaybillInferredJobFacet as WaybillInferredJobFacet,
        WaybillInferredRunFacet as WaybillInferredRunFacet,
    )
    from .summary import WaybillSummaryRunFacet as WaybillSummaryRunFacet

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
