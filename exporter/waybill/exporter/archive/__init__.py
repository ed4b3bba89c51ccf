"""The archive: every entry of the journal, kept in Parquet for rebuilds."""

from __future__ import annotations

from waybill.exporter.archive.files import EVENTS_SCHEMA, archived_files, read_entries
from waybill.exporter.archive.projection import Archive, open_archive

__all__ = [
    "EVENTS_SCHEMA",
    "Archive",
    "archived_files",
    "open_archive",
    "read_entries",
]
