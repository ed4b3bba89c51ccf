"""The journal: every accepted entry, in order, on disk before it is acknowledged."""

from .begun import BegunTransforms, encode_begun, redact_mark
from .entry import RECEIPT_PATTERN, Entry, Kind, Receipt, event_in
from .fingerprints import FileContent
from .journal import NEARLY_FULL, Journal, Waiting
from .nodes import Node
from .poison import Poison
from .recent import RecentEntries
from .rescue import has_traces
from .rows import Item
from .state_rows import StateRows, StateStore, key_of_run
from .to_read import OpenedToRead
from .watch import Watch
