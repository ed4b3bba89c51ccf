"""Questions to the layout, and where the records of an entry are."""

from waybill.exporter.incomplete import IncompleteError as IncompleteError
from waybill.exporter.query.backlog import (
    Backlog as Backlog,
    BacklogError as BacklogError,
    poison_note as poison_note,
    read_backlog as read_backlog,
)
from waybill.exporter.query.comparison import Difference as Difference, compare as compare
from waybill.exporter.query.locate import Located as Located, locate_entry as locate_entry
from waybill.exporter.query.query import PatternError as PatternError, Query as Query
from waybill.exporter.query.reader import find as find, scan as scan
