"""Summaries: one run that stands for many files, where a backend cannot take an event for each."""

from __future__ import annotations

from waybill.marquez.summaries.coalesced import CoalescedEntries
from waybill.marquez.summaries.coalescing import Coalescing, now_ms, summary_event

__all__ = [
    "CoalescedEntries",
    "Coalescing",
    "now_ms",
    "summary_event",
]
