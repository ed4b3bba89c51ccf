"""The sources of a rebuild: where stored entries are read from."""

from waybill.exporter.sources.events import EventsSource as EventsSource, open_events as open_events
from waybill.exporter.sources.journal import JournalSource as JournalSource, open_journal as open_journal
from waybill.exporter.sources.lines import LinesSource as LinesSource, open_lines as open_lines
from waybill.exporter.sources.objects import (
    MARK as MARK,
    StoredObject as StoredObject,
    list_objects as list_objects,
    look_up_objects as look_up_objects,
    open_object as open_object,
    open_stored as open_stored,
    read_object as read_object,
    shown as shown,
)
from waybill.exporter.sources.postgres import MarquezDatabaseSource as MarquezDatabaseSource
from waybill.exporter.sources.source import (
    SOURCES_GROUP as SOURCES_GROUP,
    OpenSource as OpenSource,
    Source as Source,
    SourceError as SourceError,
    SourceUnreachableError as SourceUnreachableError,
    Stored as Stored,
    open_source as open_source,
)
