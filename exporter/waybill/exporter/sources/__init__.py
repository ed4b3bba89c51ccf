"""Where stored entries are read from: the sources of a rebuild."""

from __future__ import annotations

from waybill.exporter.sources.events import EventsSource, open_events
from waybill.exporter.sources.journal import JournalSource, open_journal
from waybill.exporter.sources.lines import LinesSource, open_lines
from waybill.exporter.sources.marquez import MarquezSource, open_marquez
from waybill.exporter.sources.postgres import MarquezDatabaseSource, open_marquez_db
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
    "SOURCES_GROUP",
    "EventsSource",
    "JournalSource",
    "LinesSource",
    "MarquezDatabaseSource",
    "MarquezSource",
    "OpenSource",
    "Source",
    "SourceError",
    "SourceUnreachableError",
    "Stored",
    "open_events",
    "open_journal",
    "open_lines",
    "open_marquez",
    "open_marquez_db",
    "open_source",
]
