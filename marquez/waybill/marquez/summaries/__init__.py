"""Summaries: one run that stands for many files, where a backend cannot take an event for each."""

from waybill.marquez.summaries.coalesced import CoalescedEntries as CoalescedEntries
from waybill.marquez.summaries.coalescing import (
    Coalescing as Coalescing,
    now_ms as now_ms,
    summary_event as summary_event,
)
