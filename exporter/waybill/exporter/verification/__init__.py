"""The proof that a root is right, and the proof behind one file's records."""

from __future__ import annotations

from waybill.exporter.verification.explanation import Explanation, RowSeen, StepSeen, explain
from waybill.exporter.verification.verification import CheckedFile, Finding, check

__all__ = [
    "CheckedFile",
    "Explanation",
    "Finding",
    "RowSeen",
    "StepSeen",
    "check",
    "explain",
]
