"""Queries of the layout, and the location of an entry's records."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from ..incomplete import IncompleteError as IncompleteError
    from .access import FOLDERS as FOLDERS, Access as Access, Listing as Listing
    from .answer_file import write_answer as write_answer
    from .as_of import EntriesGoneError as EntriesGoneError, read_as_of as read_as_of
    from .comparison import Difference as Difference, compare as compare
    from .conditions import (
        CONDITIONS as CONDITIONS,
        Condition as Condition,
        ConditionKind as ConditionKind,
        InvalidQueryError as InvalidQueryError,
        read_conditions as read_conditions,
    )
    from .database import (
        FAILED as FAILED,
        connect as connect,
        connect_alone as connect_alone,
        escaped as escaped,
        execute as execute,
        run as run,
    )
    from .locate import Located as Located, locate_entry as locate_entry
    from .position import (
        CursorError as CursorError,
        beyond as beyond,
        cursor_of as cursor_of,
        in_order as in_order,
        read_cursor as read_cursor,
    )
    from .query import (
        Query as Query,
        TooManyError as TooManyError,
        has_name as has_name,
        is_pattern as is_pattern,
    )
    from .reader import scan as scan
    from .sql import Conditions as Conditions
    from .summarized import Summarized as Summarized, read_summarized as read_summarized
    from .sums import (
        KIND_COLUMNS as KIND_COLUMNS,
        STATS_BY as STATS_BY,
        SUMMED_COLUMNS as SUMMED_COLUMNS,
        Dimension as Dimension,
        Kind as Kind,
        Stats as Stats,
        Sum as Sum,
        heard_sums as heard_sums,
        read_dimensions as read_dimensions,
        stats_of as stats_of,
        summed as summed,
        sums_of as sums_of,
        told_sums as told_sums,
    )
    from .tail import (
        NO_TAIL as NO_TAIL,
        BacklogError as BacklogError,
        Tail as Tail,
        TailReader as TailReader,
        poison_note as poison_note,
    )

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
