"""Where stored entries are read from: the sources of a rebuild.

Those of Marquez and its database are in modules of their own, `marquez` and `postgres`: what they need, only
they need.
"""

from __future__ import annotations

from waybill.exporter.sources.events import EventsSource, open_events
from waybill.exporter.sources.journal import JournalSource, open_journal
from waybill.exporter.sources.lines import LinesSource, open_lines
from waybill.exporter.sources.objects import MARK, list_objects, open_object, read_object, shown
from waybill.exporter.sources.postgres import MarquezDatabaseSource
from waybill.exporter.sources.source import (
    SOURCES_GROUP,
    OpenSource,
    Source,
    SourceError,
    SourceUnreachableError,
    Stored,
    open_source,
)

__all__ = [
    "MARK",
    "SOURCES_GROUP",
    "EventsSource",
    "JournalSource",
    "LinesSource",
    "MarquezDatabaseSource",
    "OpenSource",
    "Source",
    "SourceError",
    "SourceUnreachableError",
    "Stored",
    "list_objects",
    "open_events",
    "open_journal",
    "open_lines",
    "open_object",
    "open_source",
    "read_object",
    "shown",
]
