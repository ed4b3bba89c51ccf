"""Compaction: raw files become one file for each system and hour."""

from __future__ import annotations

from waybill.exporter.compaction.compactor import (
    CompactionReport,
    Compactor,
    HourReport,
    compact_hour,
    summed,
)
from waybill.exporter.compaction.raw import RawWriter, by_hour
from waybill.exporter.compaction.remote import as_sent, compact_remote, compact_remote_hour, remote_raw_hours
from waybill.exporter.compaction.retraction import Retraction
from waybill.exporter.compaction.schedule import CompactionSchedule
from waybill.exporter.compaction.squash import squash_hour

__all__ = [
    "CompactionReport",
    "CompactionSchedule",
    "Compactor",
    "HourReport",
    "RawWriter",
    "Retraction",
    "as_sent",
    "by_hour",
    "compact_hour",
    "compact_remote",
    "compact_remote_hour",
    "remote_raw_hours",
    "squash_hour",
    "summed",
]
