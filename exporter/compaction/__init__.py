"""Compaction: merges raw files into one file for each system and hour."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .compactor import (
        CompactionReport as CompactionReport,
        Compactor as Compactor,
        compact_hour as compact_hour,
        summed as summed,
    )
    from .raw import (
        HELD_BYTES_MAX as HELD_BYTES_MAX,
        RawWriter as RawWriter,
        by_hour as by_hour,
        squash_hour as squash_hour,
    )
    from .remote import (
        as_exported as as_exported,
        compact_remote as compact_remote,
        compact_remote_hour as compact_remote_hour,
        remote_raw_hours as remote_raw_hours,
    )
    from .restartable_hour import HourReport as HourReport, Retraction as Retraction
    from .schedule import GATHER_S as GATHER_S, CompactionSchedule as CompactionSchedule

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
