"""Queries of the layout, and the location of an entry's records."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from ..incomplete import IncompleteError
    from .access import FOLDERS, Access, Listing
    from .answer_file import write_answer
    from .as_of import EntriesGoneError, read_as_of
    from .comparison import Difference, compare
    from .conditions import (
        CONDITIONS,
        Condition,
        ConditionKind,
        InvalidQueryError,
        check_text,
        check_texts,
        read_conditions,
    )
    from .database import FAILED, connect, connect_alone, escaped, execute, run
    from .exported import ExportedFiles
    from .locate import Located, locate_entry
    from .position import CursorError, beyond, cursor_of, in_order, read_cursor
    from .query import Query, TooManyError, has_name, is_pattern
    from .reader import scan
    from .sql import Conditions
    from .summarized import Summarized, read_summarized
    from .sums import (
        KIND_COLUMNS,
        STATS_BY,
        SUMMED_COLUMNS,
        Dimension,
        Kind,
        Stats,
        Sum,
        heard_sums,
        read_dimensions,
        stats_of,
        summed,
        sums_of,
        told_sums,
    )
    from .tail import NO_TAIL, BacklogError, Tail, TailReader, poison_note

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
