"""The sources of a rebuild, which stored entries are read from."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .events import EventsSource, open_events
    from .journal import JournalSource, open_journal
    from .lines import LinesSource, open_lines
    from .objects import (
        MARK,
        ObjectGoneError,
        StoredObject,
        explained,
        list_objects,
        look_up_objects,
        open_object,
        open_stored,
        read_object,
        shown,
        version_of,
    )
    from .postgres import MarquezDatabaseSource
    from .source import (
        SOURCES_GROUP,
        OpenSource,
        ReceiptSource,
        Source,
        SourceError,
        SourceUnreachableError,
        Stored,
        open_source,
    )

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
