"""The journal: every accepted entry, in order, on disk before it is acknowledged."""

from .begun import (
    BegunTransforms as BegunTransforms,
    encode_begun as encode_begun,
    redact_mark as redact_mark,
)
from .entry import (
    RECEIPT_PATTERN as RECEIPT_PATTERN,
    Entry as Entry,
    Kind as Kind,
    Receipt as Receipt,
    event_in as event_in,
)
from .fingerprints import FileContent as FileContent
from .journal import NEARLY_FULL as NEARLY_FULL, Journal as Journal, Waiting as Waiting
from .nodes import Node as Node
from .poison import Poison as Poison
from .recent import RecentEntries as RecentEntries
from .rescue import has_traces as has_traces
from .rows import Item as Item
from .to_read import OpenedToRead as OpenedToRead
from .watch import Watch as Watch
