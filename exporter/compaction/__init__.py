"""Compaction: merges raw files into one file for each system and hour."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .compactor import CompactionReport, Compactor, compact_hour, summed
    from .raw import HELD_BYTES_MAX, RawWriter, by_hour, squash_hour
    from .remote import as_exported, compact_remote, compact_remote_hour, remote_raw_hours
    from .restartable_hour import HourReport, Retraction
    from .schedule import GATHER_S, CompactionSchedule

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
