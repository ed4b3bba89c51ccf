"""Summaries: one run that stands for many files, where a backend cannot take an event for each."""

from .coalescing import (
    CoalescedEntries as CoalescedEntries,
    Coalescing as Coalescing,
    SummaryRules as SummaryRules,
    now_ms as now_ms,
    summary_event as summary_event,
)
from .members import Members as Members
