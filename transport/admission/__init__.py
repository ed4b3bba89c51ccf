"""Admission: decides which events and records are kept, and redacts what is kept."""

from .admission import DEPTH_MAX, MAX_BODY_BYTES, admit_event, check_records, depth_error, without_indices
from .bounds import DEFAULT_BOUNDS, Bounds
from .redaction import Redaction, parse_rules
from .repeated_keys import repeated_in_text
