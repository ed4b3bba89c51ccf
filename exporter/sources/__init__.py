"""The sources of a rebuild, which stored entries are read from."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .events import EventsSource as EventsSource, open_events as open_events
    from .journal import JournalSource as JournalSource, open_journal as open_journal
    from .lines import LinesSource as LinesSource, open_lines as open_lines
    from .objects import (
        MARK as MARK,
        ObjectGoneError as ObjectGoneError,
        StoredObject as StoredObject,
        explained as explained,
        list_objects as list_objects,
        look_up_objects as look_up_objects,
        open_object as open_object,
        open_stored as open_stored,
        read_object as read_object,
        shown as shown,
        version_of as version_of,
    )
    from .postgres import MarquezDatabaseSource as MarquezDatabaseSource
    from .source import (
        SOURCES_GROUP as SOURCES_GROUP,
        OpenSource as OpenSource,
        ReceiptSource as ReceiptSource,
        Source as Source,
        SourceError as SourceError,
        SourceUnreachableError as SourceUnreachableError,
        Stored as Stored,
        open_source as open_source,
    )

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
