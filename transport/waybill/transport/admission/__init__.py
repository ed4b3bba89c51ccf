"""Admission: which events and records are kept, why one is refused, and what is taken out of one first."""

from __future__ import annotations

from waybill.transport.admission.admission import MAX_BODY_BYTES, admit_event, admit_records, check_records
from waybill.transport.admission.redaction import Redaction, parse_rules
from waybill.transport.admission.validation_errors import EXPLAINED_BYTES_MAX, event_errors, record_errors

__all__ = [
    "EXPLAINED_BYTES_MAX",
    "MAX_BODY_BYTES",
    "Redaction",
    "admit_event",
    "admit_records",
    "check_records",
    "event_errors",
    "parse_rules",
    "record_errors",
]
