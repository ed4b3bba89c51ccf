"""The journal: every accepted entry, in order, on disk before it is acknowledged."""

from .database import SYNC_EVERY_S as SYNC_EVERY_S
from .entry import Entry as Entry, Kind as Kind, event_in as event_in
from .fingerprints import (
    FileContent as FileContent,
    tells_content as tells_content,
)
from .journal import (
    NEARLY_FULL as NEARLY_FULL,
    Journal as Journal,
    Waiting as Waiting,
)
from .nodes import Node as Node
from .poison import Poison as Poison
from .recent import RecentEntries as RecentEntries
from .rescue import has_traces as has_traces
from .rows import Item as Item
from .spool import (
    Spool as Spool,
    adopt as adopt,
    damaged_spools as damaged_spools,
    waiting as waiting,
)
