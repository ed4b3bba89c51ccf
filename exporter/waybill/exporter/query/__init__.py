"""Questions to the layout, and where the records of an entry are."""

from __future__ import annotations

from waybill.exporter.query.backlog import BacklogError, read_backlog
from waybill.exporter.query.comparison import Difference, compare
from waybill.exporter.query.locate import Located, locate_entry
from waybill.exporter.query.query import Query
from waybill.exporter.query.reader import find, scan

__all__ = [
    "BacklogError",
    "Difference",
    "Located",
    "Query",
    "compare",
    "find",
    "locate_entry",
    "read_backlog",
    "scan",
]
