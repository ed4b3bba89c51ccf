"""How records become files: raw files, compacted files, and the way back to records.

Importing this package loads pyarrow; only the runner and whoever asks do.
"""

from __future__ import annotations

from waybill.exporter.age_off import AgedOff, age_off
from waybill.exporter.archive import Archive, open_archive
from waybill.exporter.aside import SetAside, list_aside
from waybill.exporter.compact import Compactor, Report
from waybill.exporter.comparison import Difference, compare
from waybill.exporter.destination import Destination, DestinationError, open_destination
from waybill.exporter.explain import Explanation, RowSeen, StepSeen, explain
from waybill.exporter.export import Exported, export
from waybill.exporter.forgetting import age_off_archive
from waybill.exporter.layout import Hour, RawName, hour_of, safe_name
from waybill.exporter.ledger import State, read_ledger
from waybill.exporter.projection import Layout, open_layout
from waybill.exporter.query import Query
from waybill.exporter.raw import RawWriter
from waybill.exporter.reader import find, scan
from waybill.exporter.rebuilding import RebuildError, RebuildReport, Wanted, rebuild, rebuild_there
from waybill.exporter.retraction import Retraction
from waybill.exporter.sources import Source, SourceError, SourceUnreachableError, Stored, open_source
from waybill.exporter.there import compact_there
from waybill.exporter.unfiled import BacklogError, unfiled
from waybill.exporter.verify import Checked, Finding, check

__all__ = [
    "AgedOff",
    "Archive",
    "BacklogError",
    "Checked",
    "Compactor",
    "Destination",
    "DestinationError",
    "Difference",
    "Explanation",
    "Exported",
    "Finding",
    "Hour",
    "Layout",
    "Query",
    "RawName",
    "RawWriter",
    "RebuildError",
    "RebuildReport",
    "Report",
    "Retraction",
    "RowSeen",
    "SetAside",
    "Source",
    "SourceError",
    "SourceUnreachableError",
    "State",
    "StepSeen",
    "Stored",
    "Wanted",
    "age_off",
    "age_off_archive",
    "check",
    "compact_there",
    "compare",
    "explain",
    "export",
    "find",
    "hour_of",
    "list_aside",
    "open_archive",
    "open_destination",
    "open_layout",
    "open_source",
    "read_ledger",
    "rebuild",
    "rebuild_there",
    "safe_name",
    "scan",
    "unfiled",
]
