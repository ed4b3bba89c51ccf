"""Admission: decides which events and records are kept, explains refusals, and redacts what is kept."""

from .admission import (
    DEPTH_MAX as DEPTH_MAX,
    MAX_BODY_BYTES as MAX_BODY_BYTES,
    admit_event as admit_event,
    check_records as check_records,
    depth_error as depth_error,
    without_indices as without_indices,
)
from .bounds import DEFAULT_BOUNDS as DEFAULT_BOUNDS, Bounds as Bounds
from .redaction import Redaction as Redaction, parse_rules as parse_rules
from .repeated_keys import repeated_in_text as repeated_in_text
from .validation_errors import (
    EXPLAINED_BYTES_MAX as EXPLAINED_BYTES_MAX,
    event_errors as event_errors,
    record_errors as record_errors,
)
