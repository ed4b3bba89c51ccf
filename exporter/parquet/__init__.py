"""Parquet files as the layout has them: encoded, sealed, merged, and read in parts."""

from .covers import Covers
from .decoded import in_pieces, same_as_before
from .encoding import (
    CODED_SCHEMA,
    COMPACTED_FILTERS,
    FORMAT,
    LARGE_ROW_BYTES,
    LARGE_ROWS,
    RAW_FILTERS,
    ROW_GROUP,
    Encoder,
    code,
    encode,
    has_large_rows,
    join,
    sort,
)
from .merge import merge_table, whole_groups, without
from .reading import (
    ALWAYS,
    DAMAGED,
    WINDOW_ROWS,
    ForeignError,
    FormatError,
    Room,
    Span,
    TimeWindow,
    check_format,
    cut,
    damage_of,
    in_windows,
    open_bytes,
    open_file,
    open_stream,
    read_window,
    row_groups,
    spans,
    systems_in,
    unreachable,
    unreadable,
)
from .rules import Rules, is_apart
from .seal import before_in, check_seal, fill_in, finish_sealed, is_intact, seal_in, seal_of, to_be_sealed
