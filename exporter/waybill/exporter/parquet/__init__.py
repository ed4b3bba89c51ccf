"""Parquet files as the layout has them: encoded, sealed, merged, and read in parts."""

from __future__ import annotations

from waybill.exporter.parquet.covers import Covers
from waybill.exporter.parquet.merge import merge_table, without
from waybill.exporter.parquet.parquet import (
    CODED_SCHEMA,
    DAMAGED,
    KEPT_FILTERS,
    RAW_FILTERS,
    ROW_GROUP,
    Encoder,
    code,
    encode,
    join,
    open_bytes,
    open_file,
    open_stream,
    read_window,
    row_groups,
    sort,
    spans,
    systems_in,
    unreachable,
    unreadable,
)
from waybill.exporter.parquet.seal import (
    before_in,
    fill_in,
    finish_sealed,
    is_intact,
    seal_in,
    seal_of,
    to_be_sealed,
)
from waybill.exporter.parquet.selection import Selectable, matching_row_groups, open_selectable, select
from waybill.exporter.parquet.time_window import WINDOW_ROWS, TimeWindow, cut

__all__ = [
    "CODED_SCHEMA",
    "DAMAGED",
    "KEPT_FILTERS",
    "RAW_FILTERS",
    "ROW_GROUP",
    "WINDOW_ROWS",
    "Covers",
    "Encoder",
    "Selectable",
    "TimeWindow",
    "before_in",
    "code",
    "cut",
    "encode",
    "fill_in",
    "finish_sealed",
    "is_intact",
    "join",
    "matching_row_groups",
    "merge_table",
    "open_bytes",
    "open_file",
    "open_selectable",
    "open_stream",
    "read_window",
    "row_groups",
    "seal_in",
    "seal_of",
    "select",
    "sort",
    "spans",
    "systems_in",
    "to_be_sealed",
    "unreachable",
    "unreadable",
    "without",
]
