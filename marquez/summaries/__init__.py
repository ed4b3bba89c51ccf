"""Summaries: one run that stands for many files, where a backend cannot take an event for each."""

from .coalescing import CoalescedEntries, Coalescing, SummaryRules, summary_event
from .members import Members
