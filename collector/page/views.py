"""All views of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .file import FILE
from .finding import FIND, OPEN
from .home import HOME
from .node import NODES
from .searching import SEARCH

if TYPE_CHECKING:
    from .view import View

VIEWS: Final[tuple[View, ...]] = (HOME, FIND, OPEN, SEARCH, FILE, *NODES)
"""The views that need only answers."""
