"""The archive: every entry of the journal, kept in Parquet for rebuilds."""

from waybill.exporter.archive.files import (
    EVENTS_SCHEMA as EVENTS_SCHEMA,
    archived_files as archived_files,
    folder_hour as folder_hour,
    read_entries as read_entries,
    read_run_ids as read_run_ids,
)
from waybill.exporter.archive.projection import (
    Archive as Archive,
    filed_ranges as filed_ranges,
    open_archive as open_archive,
)
from waybill.exporter.archive.refiling import Refiled as Refiled, refile as refile
