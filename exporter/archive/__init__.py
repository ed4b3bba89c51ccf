"""The archive: every entry of the journal, kept in Parquet for rebuilds."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .files import EVENTS_SCHEMA, archived_files, folder_hour, read_entries, read_run_ids
    from .projection import Archive, filed_ranges, open_archive
    from .refiling import Refiled, refile

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
