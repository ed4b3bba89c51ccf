"""Turning records into files: raw files, compacted files, and the way back to records.

Importing this package loads pyarrow; only the runner and programs that query records import it.
"""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .archive import open_archive as open_archive
    from .compaction import Compactor as Compactor
    from .exporting import (
        DestinationError as DestinationError,
        export as export,
        open_destination as open_destination,
    )
    from .incomplete import IncompleteError as IncompleteError
    from .keys import open_keys as open_keys
    from .layout import open_layout as open_layout
    from .query import Query as Query, compare as compare
    from .rebuilding import RebuildError as RebuildError, Wanted as Wanted, rebuild as rebuild
    from .repairing import repair as repair
    from .retention import age_off as age_off, age_off_archive as age_off_archive
    from .sources import (
        Source as Source,
        SourceError as SourceError,
        SourceUnreachableError as SourceUnreachableError,
        Stored as Stored,
        open_source as open_source,
    )
    from .verification import check as check, explain as explain

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
