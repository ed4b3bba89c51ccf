"""Parquet files as the layout has them: encoded, sealed, merged, and read in parts."""

from .bloom import can_hold as can_hold
from .covers import Covers as Covers
from .decoded import in_pieces as in_pieces
from .encoding import (
    CODED_SCHEMA as CODED_SCHEMA,
    COMPACTED_FILTERS as COMPACTED_FILTERS,
    FORMAT as FORMAT,
    LARGE_ROW_BYTES as LARGE_ROW_BYTES,
    LARGE_ROWS as LARGE_ROWS,
    RAW_FILTERS as RAW_FILTERS,
    ROW_GROUP as ROW_GROUP,
    Encoder as Encoder,
    code as code,
    encode as encode,
    has_large_rows as has_large_rows,
    join as join,
    sort as sort,
)
from .merge import merge_table as merge_table, without as without
from .reading import (
    ALWAYS as ALWAYS,
    DAMAGED as DAMAGED,
    WINDOW_ROWS as WINDOW_ROWS,
    ForeignError as ForeignError,
    FormatError as FormatError,
    Room as Room,
    Span as Span,
    TimeWindow as TimeWindow,
    check_format as check_format,
    cut as cut,
    damage_of as damage_of,
    in_windows as in_windows,
    open_bytes as open_bytes,
    open_file as open_file,
    open_stream as open_stream,
    read_window as read_window,
    row_groups as row_groups,
    spans as spans,
    systems_in as systems_in,
    unreachable as unreachable,
    unreadable as unreadable,
)
from .rules import Rules as Rules, is_apart as is_apart
from .seal import (
    before_in as before_in,
    check_seal as check_seal,
    fill_in as fill_in,
    finish_sealed as finish_sealed,
    is_intact as is_intact,
    seal_in as seal_in,
    seal_of as seal_of,
    to_be_sealed as to_be_sealed,
)
