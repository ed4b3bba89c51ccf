"""What is recorded: the DeltaFile facet, the provenance record, and the fold from run events to records.

Nothing here does I/O. The modules that need pyarrow (`arrow`, `columns`) or the OpenLineage client
(`delta_file`, `summary`, `inferred`) are imported by name.
"""

from waybill.facets.event import (
    DELTA_FILE_FACET,
    EVIDENCE_FACET,
    INFERRED_FACET,
    PRODUCER,
    DatasetEvent,
    Event,
    EventType,
    JobEvent,
    RunEvent,
    decode_event,
    parse_instant_us,
)
from waybill.facets.folding import (
    EVIDENCE,
    RunState,
    facet_records,
    fold,
    has_record,
    inferred_reason,
    merge_states,
    observe,
    records_of,
)
from waybill.facets.merge_rule import is_collision, merge_all, merge_records, record_key
from waybill.facets.record import UNREADABLE, FinalState, ProvenanceRecord, decode_records, keep_annotations

__all__ = [
    "DELTA_FILE_FACET",
    "EVIDENCE",
    "EVIDENCE_FACET",
    "INFERRED_FACET",
    "PRODUCER",
    "UNREADABLE",
    "DatasetEvent",
    "Event",
    "EventType",
    "FinalState",
    "JobEvent",
    "ProvenanceRecord",
    "RunEvent",
    "RunState",
    "decode_event",
    "decode_records",
    "facet_records",
    "fold",
    "has_record",
    "inferred_reason",
    "is_collision",
    "keep_annotations",
    "merge_all",
    "merge_records",
    "merge_states",
    "observe",
    "parse_instant_us",
    "record_key",
    "records_of",
]
